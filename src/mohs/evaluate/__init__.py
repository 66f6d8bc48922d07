"""Evaluation of trained models: calibration, robustness, out-of-distribution detection, explanations and statistics."""
