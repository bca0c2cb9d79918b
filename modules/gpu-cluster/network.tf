# No lookup of this module has a condition: where the variables come from a resource that is still to be created, Terraform
# would put off the lookup until then, and with it what follows from it. The conditions stand at the resources.

# Without a network of yours: the account's default VPC, whose subnets reach the internet by a public address.
data "aws_vpcs" "default" {
  count = local.use_default_vpc ? 1 : 0

  filter {
    name   = "is-default"
    values = ["true"]
  }
}

data "aws_subnets" "default" {
  count = local.use_default_vpc ? 1 : 0

  filter {
    name   = "vpc-id"
    values = coalescelist(data.aws_vpcs.default[0].ids, ["none"])
  }
  filter {
    name   = "default-for-az"
    values = ["true"]
  }
}

data "aws_subnet" "candidate" {
  for_each = toset(local.use_default_vpc ? data.aws_subnets.default[0].ids : var.subnet_ids)

  id = each.value
}

locals {
  use_default_vpc = var.vpc_id == null && length(var.subnet_ids) == 0
  vpc_id          = local.use_default_vpc ? one(data.aws_vpcs.default[0].ids) : var.vpc_id
  elsewhere       = [for subnet in data.aws_subnet.candidate : subnet if subnet.vpc_id != local.vpc_id]

  # Zone IDs, because the name us-east-1a means different places in different accounts.
  subnets = {
    for id, subnet in data.aws_subnet.candidate : id => subnet.availability_zone_id
    if(var.availability_zone_id == "" || subnet.availability_zone_id == var.availability_zone_id) &&
    (!local.use_default_vpc || contains(data.aws_ec2_instance_type_offerings.zone.locations, subnet.availability_zone_id))
  }
  zone_ids = distinct(values(local.subnets))
}

resource "aws_vpc_endpoint" "s3" {
  count = length(var.s3_endpoint_route_table_ids) > 0 ? 1 : 0

  vpc_id            = local.vpc_id
  service_name      = "com.amazonaws.${local.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = var.s3_endpoint_route_table_ids
  tags              = merge(local.tags, { Name = "${local.name}-s3" })
}
