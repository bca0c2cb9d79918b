# Beside main.tf of the workspace: scav leaves files alone that it did not write.
terraform {
  cloud {
    organization = "your-org"

    workspaces {
      name = "training"
    }
  }
}
