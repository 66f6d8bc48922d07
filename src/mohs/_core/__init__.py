"""Foundations that every other package shares: validation, specs, files, folders, devices, the forward pass, errors."""
