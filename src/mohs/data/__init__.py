"""Data: readers, splits, label noise, degradations and domains."""
