"""How long one optimizer step takes on a cluster, probed or not."""
