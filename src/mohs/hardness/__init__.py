"""How hard each example is: scores, dynamics, verdicts."""
