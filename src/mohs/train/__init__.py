"""Training: the loop, its parts, and runs that survive."""
