data "aws_ec2_instance_type_offerings" "zone" {
  location_type = "availability-zone-id"

  filter {
    name   = "instance-type"
    values = [var.instance_type]
  }
}

resource "aws_autoscaling_group" "nodes" {
  name                = local.name
  min_size            = 0
  max_size            = var.node_count
  desired_capacity    = var.node_count
  vpc_zone_identifier = keys(local.subnets)
  placement_group     = var.placement_group ? aws_placement_group.cluster[0].name : null
  health_check_type   = "EC2"
  # What the alarm in silence.tf looks at.
  enabled_metrics = ["GroupInServiceInstances"]

  # The world size is fixed: a replacement before the old node is gone would have no place in it.
  capacity_rebalance = false
  # Moving a healthy node to balance zones would interrupt training.
  suspended_processes = concat(["AZRebalance"], var.replace_lost_nodes ? [] : ["ReplaceUnhealthy"])
  # Spot capacity may take hours; a pipeline must not wait for it.
  wait_for_capacity_timeout = "0"

  mixed_instances_policy {
    instances_distribution {
      on_demand_base_capacity                  = var.on_demand_count
      on_demand_percentage_above_base_capacity = var.on_demand_count == var.node_count ? 100 : 0
      on_demand_allocation_strategy            = "prioritized"
      spot_allocation_strategy                 = "price-capacity-optimized"
    }

    launch_template {
      launch_template_specification {
        launch_template_id = aws_launch_template.node[var.instance_type].id
        # A number and not $Latest: what was reviewed is what starts.
        version = aws_launch_template.node[var.instance_type].latest_version
      }

      dynamic "override" {
        for_each = local.instance_types

        content {
          instance_type = override.value

          launch_template_specification {
            launch_template_id = aws_launch_template.node[override.value].id
            version            = aws_launch_template.node[override.value].latest_version
          }
        }
      }
    }
  }

  dynamic "tag" {
    for_each = merge(local.tags, { Name = local.name })

    content {
      key   = tag.key
      value = tag.value
      # The launch template tags the instances.
      propagate_at_launch = false
    }
  }

  timeouts {
    # Nodes with many GPUs take longer to end than the ten minutes that the provider waits.
    delete = "60m"
  }

  lifecycle {
    # The run itself scales to 0 when it is done: applying again must not start it again.
    ignore_changes = [desired_capacity]

    precondition {
      condition     = var.ami_id != null || !local.too_old_for_defaults
      error_message = "The GPUs of ${var.instance_type} need a machine image with NVIDIA's proprietary driver: set run.ami in scav.yaml, or ami_id."
    }
    precondition {
      condition     = var.container_image != null || !local.too_old_for_defaults
      error_message = "PyTorch in ${var.deep_learning_container} has no kernels for the GPUs of ${var.instance_type}: set run.image in scav.yaml, or container_image."
    }
    precondition {
      condition     = var.container_image != null || var.source_folder != null
      error_message = "AWS's container has no training script: set run.source in scav.yaml to the folder of yours, or run.image to an image that has it."
    }
    precondition {
      condition     = length(local.elsewhere) == 0
      error_message = "Subnets are not in vpc_id = ${coalesce(local.vpc_id, "null")}: ${join(", ", [for subnet in local.elsewhere : "${subnet.id} is in ${subnet.vpc_id}"])}."
    }
    precondition {
      condition     = length(local.subnets) > 0
      error_message = "None of ${local.use_default_vpc ? "the default VPC's subnets" : "subnet_ids"} is in availability_zone_id = ${var.availability_zone_id}${local.use_default_vpc ? " with ${var.instance_type}" : ""}: they are in ${join(", ", distinct([for subnet in data.aws_subnet.candidate : subnet.availability_zone_id]))}. Add a subnet in ${var.availability_zone_id}, or plan for another zone."
    }
    precondition {
      condition     = !var.placement_group || length(local.zone_ids) <= 1
      error_message = "A cluster placement group cannot span zones, and subnet_ids are in ${join(", ", local.zone_ids)}: set availability_zone_id, or placement_group = false."
    }
    precondition {
      condition     = length(setsubtract(local.zone_ids, data.aws_ec2_instance_type_offerings.zone.locations)) == 0
      error_message = "${var.instance_type} is not offered in ${join(", ", setsubtract(local.zone_ids, data.aws_ec2_instance_type_offerings.zone.locations))}: plan for another zone."
    }
    precondition {
      condition     = var.on_demand_count <= var.node_count
      error_message = "on_demand_count = ${var.on_demand_count} is more than node_count = ${var.node_count}."
    }
    precondition {
      condition     = !contains(var.instance_type_overrides, var.instance_type)
      error_message = "instance_type_overrides must not repeat instance_type = ${var.instance_type}."
    }
    precondition {
      condition     = var.capacity_reservation_id == null || var.on_demand_count == var.node_count
      error_message = "A capacity reservation holds on-demand nodes: set on_demand_count = node_count = ${var.node_count}, or capacity_reservation_id = null."
    }
    precondition {
      condition     = var.capacity_reservation_id == null || length(var.instance_type_overrides) == 0
      error_message = "A capacity reservation holds one instance type: empty instance_type_overrides, or set capacity_reservation_id = null."
    }
    precondition {
      condition     = var.capacity_reservation_id == null || !var.placement_group
      error_message = "The reservation decides where the nodes are: set placement_group = false, or capacity_reservation_id = null."
    }
    precondition {
      condition     = var.efa_interfaces == 0 || var.node_count == 1 || length(local.zone_ids) <= 1
      error_message = "EFA does not reach across zones, and subnet_ids are in ${join(", ", local.zone_ids)}: set availability_zone_id."
    }
  }

  # A node needs all of this from its first minute.
  depends_on = [
    aws_cloudwatch_event_target.silent,
    aws_cloudwatch_log_group.run,
    aws_iam_role_policy.node,
    aws_iam_role_policy.stop,
    aws_iam_role_policy_attachment.ssm,
    aws_s3_bucket_policy.checkpoints,
    aws_s3_bucket_public_access_block.checkpoints,
    aws_s3_bucket_server_side_encryption_configuration.checkpoints,
    aws_s3_bucket_versioning.checkpoints,
    aws_autoscaling_group.fallback,
    aws_s3_object.source,
    aws_scheduler_schedule.stop,
    aws_vpc_security_group_egress_rule.https,
    aws_vpc_security_group_egress_rule.nodes,
    aws_vpc_security_group_egress_rule.s3,
    aws_vpc_security_group_ingress_rule.nodes,
  ]
}
