"""Data: where examples come from, and what is done to them before training."""
