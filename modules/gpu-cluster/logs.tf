locals {
  log_group_name = "/scav/${var.run_id}"
}

# Streams: <instance>/train is the container's output, <instance>/node what the node's agent did.
resource "aws_cloudwatch_log_group" "run" {
  # checkov:skip=CKV_AWS_158: CloudWatch encrypts logs with a key of its own; kms_key_arn is for who must hold the key.
  name              = local.log_group_name
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
  # Why a run failed is asked when it is gone.
  skip_destroy = !var.bucket_force_destroy
  tags         = local.tags
}
