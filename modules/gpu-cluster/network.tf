# Without a network of yours: the account's default VPC, whose subnets reach the internet by a public address.
data "aws_vpcs" "default" {
  count = local.use_default_vpc ? 1 : 0

  filter {
    name   = "is-default"
    values = ["true"]
  }

  lifecycle {
    postcondition {
      condition     = length(self.ids) == 1
      error_message = "There is no default VPC in ${local.region}: set network.vpc and network.subnets in scav.yaml, or vpc_id and subnet_ids."
    }
  }
}

data "aws_subnets" "default" {
  count = local.use_default_vpc ? 1 : 0

  filter {
    name   = "vpc-id"
    values = data.aws_vpcs.default[0].ids
  }
  filter {
    name   = "default-for-az"
    values = ["true"]
  }
}

data "aws_subnet" "candidate" {
  for_each = toset(local.use_default_vpc ? data.aws_subnets.default[0].ids : var.subnet_ids)

  id = each.value

  lifecycle {
    postcondition {
      condition     = local.use_default_vpc || self.vpc_id == var.vpc_id
      error_message = "Subnet ${self.id} is in ${self.vpc_id}, not in vpc_id = ${coalesce(var.vpc_id, "null")}."
    }
  }
}

locals {
  use_default_vpc = var.vpc_id == null && length(var.subnet_ids) == 0
  vpc_id          = local.use_default_vpc ? data.aws_vpcs.default[0].ids[0] : var.vpc_id

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
