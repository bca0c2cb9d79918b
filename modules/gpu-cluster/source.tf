# The job's own files, from the workspace into the run's bucket: no image has to be built for a script.

locals {
  # Without hidden files and caches, as scav leaves them out of a workspace.
  not_source   = "(^|/)([.]|__pycache__/|node_modules/|venv/)|[.](pyc|pyo|tfstate|tfplan)$"
  every_file   = var.source_folder == null ? [] : sort(tolist(fileset("${path.root}/${var.source_folder}", "**")))
  source_files = [for file in local.every_file : file if !can(regex(local.not_source, file))]
  # One object, whose bytes follow from the files alone: their names, sorted, and their contents.
  source_pack   = jsonencode({ for file in local.source_files : file => filebase64("${path.root}/${var.source_folder}/${file}") })
  source_sha256 = sha256(local.source_pack)
  source        = var.source_folder == null ? null : { key = "source/${local.source_sha256}.json", sha256 = local.source_sha256 }
}

resource "aws_s3_object" "source" {
  # checkov:skip=CKV_AWS_186: The bucket encrypts everything, with kms_key_arn where there is one.
  count = var.source_folder == null ? 0 : 1

  bucket = local.bucket_name
  # The hash in the name: nodes that run keep their source, and a change is a new object.
  key          = "${var.run_id}/${local.source.key}"
  content      = local.source_pack
  content_type = "application/json"

  lifecycle {
    precondition {
      condition     = length(local.source_files) > 0
      error_message = "source_folder = ${var.source_folder} has no files."
    }
    precondition {
      condition     = length(local.source_pack) <= 8 * 1024 * 1024
      error_message = "source_folder = ${var.source_folder} holds more than 6 MiB: put data into S3 and large code into an image."
    }
  }

  depends_on = [
    aws_s3_bucket_ownership_controls.checkpoints,
    aws_s3_bucket_policy.checkpoints,
    aws_s3_bucket_server_side_encryption_configuration.checkpoints,
    aws_s3_bucket_versioning.checkpoints,
  ]
}
