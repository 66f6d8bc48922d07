"""Studies: a table of a paper as a recipe, its runs, and the verdict on its claims."""
