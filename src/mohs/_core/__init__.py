"""Foundations that every other package shares: validation, specs, files, distributed processes, errors."""
