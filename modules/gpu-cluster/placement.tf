resource "aws_placement_group" "cluster" {
  count = var.placement_group ? 1 : 0

  name     = local.name
  strategy = "cluster"
  tags     = local.tags
}
