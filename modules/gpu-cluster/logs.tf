locals {
  log_group_name = "/scav/${var.run_id}"
}

# Streams: <instance>/train is the container's output, <instance>/node what the node's agent did.
resource "aws_cloudwatch_log_group" "run" {
  name              = local.log_group_name
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
  tags              = local.tags
}
