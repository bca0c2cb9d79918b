# Warnings, not errors: a quota can be raised while the plan is reviewed.

locals {
  # All of them, should spot not do.
  on_demand_at_most = var.policy_file == null ? var.on_demand_count : var.node_count

  family = regex("^[a-z]+", var.instance_type)
  vcpus  = data.aws_ec2_instance_type.node[var.instance_type].default_vcpus

  # G and VT share a quota; spot P5 has one of its own.
  quota_codes = {
    on_demand = lookup({ p = "L-417A185B" }, local.family, "L-DB2E81BA")
    spot      = startswith(var.instance_type, "p5") ? "L-C4BD4855" : lookup({ p = "L-7212CCBC" }, local.family, "L-3819A6DF")
  }
  # Where the quota is known. Elsewhere the check passes: the spot quota of P6 is not documented.
  quota_known = {
    on_demand = contains(["g", "gr", "p", "vt"], local.family)
    spot      = contains(["g", "gr", "p", "vt"], local.family) && !startswith(var.instance_type, "p6")
  }
  vcpus_needed = {
    on_demand = local.on_demand_at_most * local.vcpus
    spot      = (var.node_count - var.on_demand_count) * local.vcpus
  }
  vcpus_allowed = { for option, quota in data.aws_servicequotas_service_quota.vcpus : option => quota.value }
}

# Not inside the checks: Terraform would plan to read it again at every apply, and a plan without changes
# would end with exit code 2, which pipelines take for drift.
data "aws_servicequotas_service_quota" "vcpus" {
  for_each = { for option, code in local.quota_codes : option => code if var.check_quotas && local.quota_known[option] }

  service_code = "ec2"
  quota_code   = each.value
}

check "on_demand_quota" {
  assert {
    condition     = local.vcpus_needed.on_demand <= lookup(local.vcpus_allowed, "on_demand", local.vcpus_needed.on_demand)
    error_message = "${local.on_demand_at_most} on-demand ${var.instance_type} need ${local.vcpus_needed.on_demand} vCPUs; quota ${local.quota_codes.on_demand} allows ${lookup(local.vcpus_allowed, "on_demand", 0)} in ${local.region}. Ask for more in Service Quotas."
  }
}

check "spot_quota" {
  assert {
    condition     = local.vcpus_needed.spot <= lookup(local.vcpus_allowed, "spot", local.vcpus_needed.spot)
    error_message = "${var.node_count - var.on_demand_count} spot ${var.instance_type} need ${local.vcpus_needed.spot} vCPUs; quota ${local.quota_codes.spot} allows ${lookup(local.vcpus_allowed, "spot", 0)} in ${local.region}. Ask for more in Service Quotas."
  }
}
