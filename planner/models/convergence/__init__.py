"""How many samples the target takes at a batch size."""
