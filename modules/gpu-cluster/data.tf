# What the job reads: copied from S3 to every node, mounted from FSx for Lustre, or on a volume made of a snapshot.

locals {
  # A prefix ends in a slash: what stands beside the folder and begins like it is not the job's.
  s3_data = {
    for source in var.data : source.name => {
      bucket = regex("^s3://([^/]+)", source.uri)[0]
      prefix = replace(regex("^s3://[^/]+/*(.*)$", source.uri)[0], "/([^/])/*$/", "$1/")
    } if startswith(source.uri, "s3://")
  }
  snapshots = [for source in var.data : source if startswith(source.uri, "snap-")]
  snapshot_devices = {
    for index, source in local.snapshots : source.name => { device = "/dev/sd${substr("fghijklmnop", index, 1)}", snapshot_id = source.uri }
  }

  # What `copy`, `mount` or `volume` needs on the node.
  node_data = [
    for source in var.data : {
      name = source.name
      gib  = source.gib
      copy = can(local.s3_data[source.name]) ? trimsuffix("s3://${local.s3_data[source.name].bucket}/${local.s3_data[source.name].prefix}", "/") : null
      mount = startswith(source.uri, "fs-") ? join("", [
        split("/", source.uri)[0], ".fsx.", local.region, ".", data.aws_partition.current.dns_suffix, "@tcp:/", split("/", source.uri)[1],
      ]) : null
      volume = can(local.snapshot_devices[source.name]) ? local.snapshot_devices[source.name].device : null
    }
  ]

  # The slowest copy that is waited for: 20 seconds for a GiB.
  data_seconds = 20 * sum(concat([0], [for source in var.data : source.gib]))

  data_statements = length(local.s3_data) == 0 ? [] : concat(
    [
      {
        Sid       = "ReadData"
        Effect    = "Allow"
        Action    = ["s3:GetObject"]
        Resource  = [for source in values(local.s3_data) : "arn:${local.partition}:s3:::${source.bucket}/${source.prefix}*"]
        Condition = {}
      },
    ],
    [
      for name, source in local.s3_data : {
        Sid       = "ListData${replace(title(replace(name, "/[_-]/", " ")), " ", "")}"
        Effect    = "Allow"
        Action    = ["s3:ListBucket"]
        Resource  = ["arn:${local.partition}:s3:::${source.bucket}"]
        Condition = { StringLike = { "s3:prefix" = ["${source.prefix}*"] } }
      }
    ],
  )
}

resource "aws_iam_role_policy_attachment" "extra" {
  for_each = toset(var.policy_arns)

  role       = aws_iam_role.node.name
  policy_arn = each.value
}
