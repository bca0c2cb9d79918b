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

# The routes of those subnets. A subnet without a table of its own has that of its VPC.
data "aws_route_tables" "own" {
  for_each = local.subnets

  filter {
    name   = "association.subnet-id"
    values = [each.key]
  }
}

data "aws_route_tables" "main" {
  vpc_id = local.vpc_id

  filter {
    name   = "association.main"
    values = ["true"]
  }
}

# Whichever way a route came there, which data.aws_route_table does not say of all.
data "aws_route_tables" "leading" {
  for_each = {
    out = ["route.destination-cidr-block", "0.0.0.0/0"]
    s3  = ["route.destination-prefix-list-id", data.aws_ec2_managed_prefix_list.s3.id]
  }

  vpc_id = local.vpc_id

  filter {
    name   = each.value[0]
    values = [each.value[1]]
  }
}

data "aws_route_table" "used" {
  for_each = toset(values(local.route_table_ids))

  route_table_id = each.value
}

locals {
  route_table_ids = { for id, tables in data.aws_route_tables.own : id => concat(tables.ids, data.aws_route_tables.main.ids)[0] }

  # Nodes have a public address in the default VPC only: elsewhere an internet gateway leads nowhere.
  leading_nowhere = local.use_default_vpc ? [] : [
    for id, table in data.aws_route_table.used : id
    if anytrue([for route in table.routes : route.cidr_block == "0.0.0.0/0" && startswith(route.gateway_id, "igw-")])
  ]
  no_way_out = [
    for subnet, table in local.route_table_ids : subnet
    if !contains(data.aws_route_tables.leading["out"].ids, table) || contains(local.leading_nowhere, table)
  ]
  no_s3_endpoint = [
    for subnet, table in local.route_table_ids : subnet if !contains(data.aws_route_tables.leading["s3"].ids, table)
  ]
}

# Warnings: interface endpoints may be the way out, and who may not see them may still apply.
check "route_to_aws" {
  assert {
    condition     = length(local.no_way_out) == 0
    error_message = "No route to the internet from ${join(", ", local.no_way_out)}, where nodes have ${local.use_default_vpc ? "a" : "no"} public address: unless the VPC has endpoints for all that they need (EC2, Auto Scaling, CloudWatch Logs, the container registry), they shut down ten minutes after they start. ${local.use_default_vpc ? "Give the default VPC its internet gateway back" : "Add a NAT gateway"}, or take other subnets."
  }
}

check "s3_gateway_endpoint" {
  assert {
    condition     = local.use_default_vpc || length(local.no_s3_endpoint) == 0
    error_message = "No S3 gateway endpoint in the routes of ${join(", ", local.no_s3_endpoint)}: checkpoints and data pass the NAT gateway, which costs by the gigabyte. An endpoint is free; who owns the VPC adds it."
  }
}
