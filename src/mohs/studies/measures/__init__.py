"""Measures of a study on a trained network: one dataclass per measure, whose fields are the keys of a recipe."""
