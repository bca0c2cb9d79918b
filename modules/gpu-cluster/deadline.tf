# The nodes stop the run themselves at max_runtime_seconds. Should they fail to (no route to AWS, a missing tool), the group
# would replace them for ever: so AWS asks for 0 nodes as well, from a quarter of an hour later on, again and again.
# Recurring, because AWS forgets an action that happens once, and Terraform would then want to create it anew.
locals {
  stopped_groups = merge(
    { gpu = aws_autoscaling_group.nodes.name },
    { for index, group in aws_autoscaling_group.memory : "memory" => group.name },
  )
}

resource "aws_autoscaling_schedule" "stop" {
  for_each = local.stopped_groups

  # The runtime is part of the name: changed, it counts anew.
  scheduled_action_name  = "${each.value}-stop-after-${var.max_runtime_seconds}s"
  autoscaling_group_name = each.value
  start_time             = timeadd(timestamp(), "${var.max_runtime_seconds + 900}s")
  recurrence             = "*/15 * * * *"
  min_size               = 0
  max_size               = -1 # unchanged
  desired_capacity       = 0

  lifecycle {
    ignore_changes = [start_time]
  }
}
