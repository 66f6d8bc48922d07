"""What a study measures on a trained network, by kind: one dataclass a measure, its fields the keys of a recipe."""
