"""DeepVM (arXiv 2403.05861): which spot and on-demand machines do most for an hourly budget, and how to do better."""
