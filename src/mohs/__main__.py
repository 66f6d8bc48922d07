"""`python -m mohs` is the command `mohs`."""

from mohs.cli import main

main()
