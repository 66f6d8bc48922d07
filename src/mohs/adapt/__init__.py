"""Domain adaptation by self-training."""
