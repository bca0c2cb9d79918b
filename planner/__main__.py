"""`python -m planner` is `scav`."""

from planner.cli import main

main()
