"""scav: which GPU cluster to rent for a training job, and its Terraform."""

__version__ = "0.1.0"
