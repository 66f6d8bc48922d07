"""Studies: a paper's table as a recipe, its runs, and verdicts on the paper's claims."""
