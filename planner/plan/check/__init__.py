"""Is what Terraform will do still what scav planned: its plan, its values, and the files that it reads."""
