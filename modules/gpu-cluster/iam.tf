locals {
  # Only a private ECR registry needs permission to pull; null for every other registry.
  ecr = try(regex("^(?P<account>[0-9]{12})\\.dkr\\.ecr\\.(?P<region>[a-z0-9-]+)\\.amazonaws\\.com(?:\\.cn)?/(?P<name>[^@:]+)", local.container_image), null)

  ecr_statements = local.ecr == null ? [] : [
    {
      Sid       = "PullImage"
      Effect    = "Allow"
      Action    = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
      Resource  = ["arn:${local.partition}:ecr:${local.ecr.region}:${local.ecr.account}:repository/${local.ecr.name}"]
      Condition = {}
    },
    {
      Sid       = "LogInToRegistry"
      Effect    = "Allow"
      Action    = ["ecr:GetAuthorizationToken"]
      Resource  = ["*"] # The call has no resource.
      Condition = {}
    },
  ]

  # What an existing bucket is encrypted with may be another key than that of the volumes.
  keys = distinct([for arn in [var.kms_key_arn, var.checkpoint_kms_key_arn] : arn if arn != null])
  kms_statements = length(local.keys) == 0 ? [] : [
    {
      Sid       = "UseKey"
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
      Resource  = local.keys
      Condition = {}
    },
  ]

  topic_statements = var.interruption_topic_arn == null ? [] : [
    {
      Sid       = "SayWhyItFailed"
      Effect    = "Allow"
      Action    = ["sns:Publish"]
      Resource  = [var.interruption_topic_arn]
      Condition = {}
    },
  ]

  node_statements = [
    {
      Sid       = "ListRun"
      Effect    = "Allow"
      Action    = ["s3:ListBucket"]
      Resource  = [local.bucket_arn]
      Condition = { StringLike = { "s3:prefix" = ["${var.run_id}/*"] } }
    },
    {
      Sid       = "ReadAndWriteRun"
      Effect    = "Allow"
      Action    = ["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"]
      Resource  = ["${local.bucket_arn}/${var.run_id}/*"]
      Condition = {}
    },
    {
      Sid       = "RemoveOldCheckpoints"
      Effect    = "Allow"
      Action    = ["s3:DeleteObject"]
      Resource  = ["${local.bucket_arn}/${var.run_id}/checkpoints/*"]
      Condition = {}
    },
    {
      Sid       = "WriteLogs"
      Effect    = "Allow"
      Action    = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Resource  = ["arn:${local.partition}:logs:${local.region}:${local.account_id}:log-group:${local.log_group_name}:*"]
      Condition = {}
    },
    {
      Sid       = "FindNodes"
      Effect    = "Allow"
      Action    = ["ec2:DescribeInstances"]
      Resource  = ["*"] # The call has no resource.
      Condition = {}
    },
    {
      Sid       = "EndRunAndReplaceNodes"
      Effect    = "Allow"
      Action    = ["autoscaling:SetDesiredCapacity", "autoscaling:SetInstanceHealth"]
      Resource  = values(local.group_arns)
      Condition = {}
    },
  ]
}

resource "aws_iam_role" "node" {
  name                 = local.name
  description          = "Nodes of training run ${var.run_id}"
  permissions_boundary = var.permissions_boundary_arn
  tags                 = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.${data.aws_partition.current.dns_suffix}" }
    }]
  })
}

resource "aws_iam_role_policy" "node" {
  name = "run"
  role = aws_iam_role.node.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      for statement in concat(local.node_statements, local.data_statements, local.ecr_statements, local.kms_statements, local.topic_statements) :
      { for key, value in statement : key => value if key != "Condition" || value != {} }
    ]
  })
}

# A shell on a node through Session Manager: no SSH, no key pair, no open port.
resource "aws_iam_role_policy_attachment" "ssm" {
  role       = aws_iam_role.node.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_instance_profile" "node" {
  name = local.name
  role = aws_iam_role.node.name
  tags = local.tags
}
