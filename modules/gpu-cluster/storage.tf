locals {
  create_bucket = var.checkpoint_bucket == null
  # The hash makes the name unique among all accounts, and known when the plan is reviewed.
  new_bucket_name = "${local.name}-${substr(sha256("${local.account_id}/${local.region}/${var.run_id}"), 0, 8)}"
  bucket_name     = local.create_bucket ? aws_s3_bucket.checkpoints[0].bucket : var.checkpoint_bucket
  bucket_arn      = "arn:${local.partition}:s3:::${local.bucket_name}"
  checkpoint_uri  = "s3://${local.bucket_name}/${var.run_id}/checkpoints"
}

resource "aws_s3_bucket" "checkpoints" {
  # checkov:skip=CKV_AWS_18: Access logs need a second bucket; CloudTrail data events show access where an account wants it.
  # checkov:skip=CKV_AWS_144: A copy in another region would cost more than training again from the last checkpoint but one.
  # checkov:skip=CKV2_AWS_62: Nothing waits for a checkpoint to arrive; the nodes list the bucket when they need to know.
  count = local.create_bucket ? 1 : 0

  bucket = local.new_bucket_name
  # Checkpoints are what the money bought: destroy refuses while there are any, unless told otherwise.
  force_destroy = var.bucket_force_destroy
  tags          = local.tags

  lifecycle {
    # A new run_id replaces everything else. The bucket keeps its first name and the checkpoints of every run.
    ignore_changes = [bucket]
  }
}

resource "aws_s3_bucket_public_access_block" "checkpoints" {
  count = local.create_bucket ? 1 : 0

  bucket                  = aws_s3_bucket.checkpoints[0].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "checkpoints" {
  count = local.create_bucket ? 1 : 0

  bucket = aws_s3_bucket.checkpoints[0].id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_versioning" "checkpoints" {
  count = local.create_bucket ? 1 : 0

  bucket = aws_s3_bucket.checkpoints[0].id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "checkpoints" {
  count = local.create_bucket ? 1 : 0

  bucket = aws_s3_bucket.checkpoints[0].id

  rule {
    # One key request per object would cost more than the storage.
    bucket_key_enabled = true

    # Without a key of yours, the one that AWS manages for S3 in this account.
    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_policy" "checkpoints" {
  count = local.create_bucket ? 1 : 0

  bucket = aws_s3_bucket.checkpoints[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OnlyOverTls"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [local.bucket_arn, "${local.bucket_arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })

  # S3 refuses a policy while the public access block is being written.
  depends_on = [aws_s3_bucket_public_access_block.checkpoints]
}

resource "aws_s3_bucket_lifecycle_configuration" "checkpoints" {
  count = local.create_bucket && var.checkpoint_lifecycle ? 1 : 0

  bucket = aws_s3_bucket.checkpoints[0].id

  rule {
    id     = "remove-what-is-not-needed"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = 1 # They are of no use to a run, and cost as much as the newest.
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }

    dynamic "expiration" {
      for_each = var.checkpoint_expiry_days == null ? [] : [var.checkpoint_expiry_days]

      content {
        days = expiration.value
      }
    }
  }

  # A rule about noncurrent versions needs versioning first.
  depends_on = [aws_s3_bucket_versioning.checkpoints]
}
