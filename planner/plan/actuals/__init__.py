"""A plan held against what happened: of a finished run, and of one that goes on."""
