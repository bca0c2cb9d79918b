data "aws_ec2_managed_prefix_list" "s3" {
  name = "com.amazonaws.${local.region}.s3"
}

resource "aws_security_group" "nodes" {
  # checkov:skip=CKV2_AWS_5: The launch templates attach it, in dynamic blocks, which a plan's JSON does not show.
  name        = local.name
  description = "Nodes of training run ${var.run_id}: all traffic among themselves, HTTPS out, nothing in"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = local.name })

  lifecycle {
    precondition {
      condition     = local.vpc_id != null
      error_message = "There is no default VPC in ${local.region}: set network.vpc and network.subnets in scav.yaml, or vpc_id and subnet_ids."
    }
    precondition {
      condition     = (var.vpc_id == null) == (length(var.subnet_ids) == 0)
      error_message = "vpc_id and subnet_ids go together: set both, or neither for the default VPC."
    }
  }
}

# EFA passes traffic only between members of a group that allows all of it, in both directions.
resource "aws_vpc_security_group_ingress_rule" "nodes" {
  security_group_id            = aws_security_group.nodes.id
  description                  = "All traffic from the other nodes of this run"
  ip_protocol                  = "-1"
  referenced_security_group_id = aws_security_group.nodes.id
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "nodes" {
  security_group_id            = aws_security_group.nodes.id
  description                  = "All traffic to the other nodes of this run"
  ip_protocol                  = "-1"
  referenced_security_group_id = aws_security_group.nodes.id
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "https" {
  for_each = toset(var.https_egress_cidr_blocks)

  security_group_id = aws_security_group.nodes.id
  description       = "HTTPS to AWS APIs, the container registry and data"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = each.value
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  security_group_id = aws_security_group.nodes.id
  description       = "HTTPS to S3 in this region, for checkpoints"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  prefix_list_id    = data.aws_ec2_managed_prefix_list.s3.id
  tags              = local.tags
}
