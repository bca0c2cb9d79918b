# On-demand nodes that take over from spot nodes before a deadline is missed. The nodes decide that by the plan's policy
# (user_data/agent/market.py), and carry it out by the capacity of two groups: so they need no permission to change a group.

locals {
  fallback_name  = "${local.name}-on-demand"
  policy_content = var.policy_file == null ? "" : file("${path.root}/${var.policy_file}")
  policy         = var.policy_file == null ? null : { key = "policy/${sha256(local.policy_content)}.json", sha256 = sha256(local.policy_content) }
}

resource "aws_s3_object" "policy" {
  # checkov:skip=CKV_AWS_186: The bucket encrypts everything, with kms_key_arn where there is one.
  count = var.policy_file == null ? 0 : 1

  bucket       = local.bucket_name
  key          = "${var.run_id}/${local.policy.key}"
  content      = local.policy_content
  content_type = "application/json"

  depends_on = [
    aws_s3_bucket_ownership_controls.checkpoints,
    aws_s3_bucket_policy.checkpoints,
    aws_s3_bucket_server_side_encryption_configuration.checkpoints,
    aws_s3_bucket_versioning.checkpoints,
  ]
}

resource "aws_autoscaling_group" "fallback" {
  count = var.policy_file == null ? 0 : 1

  name                      = local.fallback_name
  min_size                  = 0
  max_size                  = var.node_count
  desired_capacity          = 0
  vpc_zone_identifier       = keys(local.subnets)
  placement_group           = var.placement_group ? aws_placement_group.cluster[0].name : null
  health_check_type         = "EC2"
  enabled_metrics           = ["GroupInServiceInstances"]
  suspended_processes       = concat(["AZRebalance"], var.replace_lost_nodes ? [] : ["ReplaceUnhealthy"])
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = aws_launch_template.node[var.instance_type].id
    version = aws_launch_template.node[var.instance_type].latest_version
  }

  dynamic "tag" {
    for_each = merge(local.tags, { Name = local.fallback_name })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false
    }
  }

  timeouts {
    delete = "60m"
  }

  lifecycle {
    # The run's nodes set it.
    ignore_changes = [desired_capacity]
  }

  # Like the other group's nodes.
  depends_on = [
    aws_cloudwatch_event_target.silent,
    aws_cloudwatch_log_group.run,
    aws_iam_role_policy.node,
    aws_iam_role_policy.stop,
    aws_iam_role_policy_attachment.ssm,
    aws_s3_object.policy,
    aws_s3_object.source,
    aws_scheduler_schedule.stop,
    aws_vpc_security_group_egress_rule.https,
    aws_vpc_security_group_egress_rule.nodes,
    aws_vpc_security_group_egress_rule.s3,
    aws_vpc_security_group_ingress_rule.nodes,
  ]
}
