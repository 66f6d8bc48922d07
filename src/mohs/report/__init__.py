"""The audit's HTML report, and the charts and image grids that commands write."""
