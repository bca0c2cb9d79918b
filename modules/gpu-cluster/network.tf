data "aws_subnet" "candidate" {
  for_each = toset(var.subnet_ids)

  id = each.value

  lifecycle {
    postcondition {
      condition     = self.vpc_id == var.vpc_id
      error_message = "Subnet ${self.id} is in ${self.vpc_id}, not in vpc_id = ${var.vpc_id}."
    }
  }
}

locals {
  # Zone IDs, because the name us-east-1a means different places in different accounts.
  subnets = {
    for id, subnet in data.aws_subnet.candidate : id => subnet.availability_zone_id
    if var.availability_zone_id == "" || subnet.availability_zone_id == var.availability_zone_id
  }
  zone_ids = distinct(values(local.subnets))
}

resource "aws_vpc_endpoint" "s3" {
  count = length(var.s3_endpoint_route_table_ids) > 0 ? 1 : 0

  vpc_id            = var.vpc_id
  service_name      = "com.amazonaws.${local.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = var.s3_endpoint_route_table_ids
  tags              = merge(local.tags, { Name = "${local.name}-s3" })
}
