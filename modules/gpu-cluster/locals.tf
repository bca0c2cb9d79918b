data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  name       = "scav-${var.run_id}"
  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  # .id and not .name, which provider 6 deprecates.
  region = data.aws_region.current.id

  console_domain = lookup({
    "aws-cn"     = "console.amazonaws.cn"
    "aws-us-gov" = "console.amazonaws-us-gov.com"
  }, local.partition, "console.aws.amazon.com")

  tags = merge(var.tags, {
    "managed-by" = "scav"
    "scav-run"   = var.run_id
  })

  # The chosen type comes first: on-demand capacity is tried in this order, and cost tools price the first.
  instance_types = concat([var.instance_type], var.instance_type_overrides)
}
