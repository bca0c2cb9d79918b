# The nodes stop the run themselves at max_runtime_seconds. Should they fail to (no route to AWS, a missing tool), the group
# would replace them for ever. So AWS asks for 0 nodes as well, again and again, once all that the run may take is over:
# waiting for capacity, starting, waiting for the last node, running, and a quarter of an hour.
locals {
  waiting_seconds = var.runtime_includes_waiting ? 0 : var.max_capacity_wait_seconds + 1800 + local.data_seconds + var.max_wait_seconds
  longest_seconds = local.waiting_seconds + var.max_runtime_seconds + 900
  # From the first apply on: later ones ignore it.
  stop_time = timeadd(timestamp(), "${local.longest_seconds}s")

  group_names = merge(
    { gpu = local.name },
    var.checkpoint_tier == null ? {} : { memory = local.memory_name },
    var.policy_file == null ? {} : { fallback = local.fallback_name },
  )
  group_arns = {
    # By name: the groups come after what stops them. The star stands for the ID that AWS gives to a group.
    for role, name in local.group_names : role =>
    "arn:${local.partition}:autoscaling:${local.region}:${local.account_id}:autoScalingGroup:*:autoScalingGroupName/${name}"
  }

  stopped_groups = merge(
    { gpu = aws_autoscaling_group.nodes.name },
    { for index, group in aws_autoscaling_group.memory : "memory" => group.name },
    { for index, group in aws_autoscaling_group.fallback : "fallback" => group.name },
  )
}

# Before the groups: an apply that is killed once they exist has left their stop behind, too.
resource "aws_scheduler_schedule" "stop" {
  # checkov:skip=CKV_AWS_297: It holds the name of a group, and no secret; kms_key_arn is for data.
  for_each = local.group_names

  # The time is part of the name: changed, it counts anew.
  name                = "${each.value}-${local.longest_seconds}s"
  description         = "Run ${var.run_id} has used up all its time"
  schedule_expression = "rate(15 minutes)"
  start_date          = local.stop_time

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = "arn:${local.partition}:scheduler:::aws-sdk:autoscaling:setDesiredCapacity"
    role_arn = aws_iam_role.stop.arn
    input    = jsonencode({ AutoScalingGroupName = each.value, DesiredCapacity = 0 })

    retry_policy {
      maximum_retry_attempts = 0 # The next quarter of an hour is one.
    }
  }

  lifecycle {
    ignore_changes = [start_date]
  }
}

resource "aws_iam_role" "stop" {
  name                 = "${local.name}-stop"
  description          = "Stops training run ${var.run_id} when its time is up"
  permissions_boundary = var.permissions_boundary_arn
  tags                 = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = ["events.amazonaws.com", "scheduler.amazonaws.com", "states.amazonaws.com"] }
      Condition = { StringEquals = { "aws:SourceAccount" = local.account_id } }
    }]
  })
}

resource "aws_iam_role_policy" "stop" {
  name = "stop"
  role = aws_iam_role.stop.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "EmptyTheGroups"
        Effect   = "Allow"
        Action   = ["autoscaling:SetDesiredCapacity"]
        Resource = values(local.group_arns)
      },
      {
        Sid      = "DoSoOnSilence"
        Effect   = "Allow"
        Action   = ["states:StartExecution"]
        Resource = ["arn:${local.partition}:states:${local.region}:${local.account_id}:stateMachine:${local.silence_name}"]
      },
    ]
  })
}

# The same by the groups themselves, which need no role. Recurring, because AWS forgets an action that happens once, and
# Terraform would then want to create it anew.
resource "aws_autoscaling_schedule" "stop" {
  for_each = local.stopped_groups

  scheduled_action_name  = "${each.value}-stop-after-${local.longest_seconds}s"
  autoscaling_group_name = each.value
  start_time             = local.stop_time
  recurrence             = "*/15 * * * *"
  min_size               = 0
  max_size               = -1 # unchanged
  desired_capacity       = 0

  lifecycle {
    ignore_changes = [start_time]
  }
}
