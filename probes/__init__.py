"""What runs on a cluster: measures a PyTorch training job. Needs torch and nothing else, never imports planner."""
