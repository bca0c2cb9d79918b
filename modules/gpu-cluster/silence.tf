# Nodes that are there and say nothing for half an hour are broken, or cut off: each agent writes a line every ten minutes.
# The alarm, and what it sets off, know the groups by their names and so exist before them, like the schedule. An alarm's
# own way of changing a group, a scaling policy, could only come after it: a killed apply would have left nodes without.

locals {
  silence_name = "${local.name}-silent"
  # Memory nodes write lines too, and are never alone for long: the schedules stop them.
  listened_to = { for role, name in local.group_names : role => name if role != "memory" }
}

resource "aws_cloudwatch_metric_alarm" "silent" {
  alarm_name          = local.silence_name
  alarm_description   = "Nodes of training run ${var.run_id} are in service, and for half an hour none of them has written a line of log: the group is emptied."
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 6
  datapoints_to_alarm = 6
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.interruption_topic_arn == null ? [] : [var.interruption_topic_arn]
  tags                = local.tags

  metric_query {
    id          = "silent_nodes"
    expression  = "IF(FILL(lines, 0) == 0, ${join(" + ", [for role in keys(local.listened_to) : "FILL(nodes_${role}, 0)"])}, 0)"
    label       = "Nodes in service while no line is written"
    return_data = true
  }

  metric_query {
    id = "lines"

    metric {
      namespace   = "AWS/Logs"
      metric_name = "IncomingLogEvents"
      period      = 300
      stat        = "Sum"
      dimensions  = { LogGroupName = local.log_group_name }
    }
  }

  dynamic "metric_query" {
    for_each = local.listened_to

    content {
      id = "nodes_${metric_query.key}"

      metric {
        namespace   = "AWS/AutoScaling"
        metric_name = "GroupInServiceInstances"
        period      = 300
        stat        = "Minimum"
        dimensions  = { AutoScalingGroupName = metric_query.value }
      }
    }
  }
}

# CloudWatch tells EventBridge of every change of an alarm's state.
resource "aws_cloudwatch_event_rule" "silent" {
  name        = local.silence_name
  description = "Nodes of training run ${var.run_id} have fallen silent"
  tags        = local.tags

  event_pattern = jsonencode({
    source        = ["aws.cloudwatch"]
    "detail-type" = ["CloudWatch Alarm State Change"]
    resources     = [aws_cloudwatch_metric_alarm.silent.arn]
    detail        = { state = { value = ["ALARM"] } }
  })
}

resource "aws_cloudwatch_event_target" "silent" {
  rule      = aws_cloudwatch_event_rule.silent.name
  target_id = "empty-the-groups"
  arn       = aws_sfn_state_machine.silent.arn
  role_arn  = aws_iam_role.stop.arn

  depends_on = [aws_iam_role_policy.stop]
}

# Like the schedule it sets a capacity and can do nothing else. The event comes once, so that this tries for hours.
resource "aws_sfn_state_machine" "silent" {
  # checkov:skip=CKV_AWS_284: One call without data: there is no path to trace.
  # checkov:skip=CKV_AWS_285: What it did is in the group's own activities, and its last executions in the console.
  name     = local.silence_name
  role_arn = aws_iam_role.stop.arn
  tags     = local.tags

  definition = jsonencode({
    Comment = "Empties the groups of training run ${var.run_id}"
    StartAt = "EachGroup"
    States = {
      EachGroup = {
        Type = "Parallel"
        End  = true
        Branches = [
          for role, name in local.listened_to : {
            StartAt = role
            States = {
              (role) = {
                Type       = "Task"
                Resource   = "arn:${local.partition}:states:::aws-sdk:autoscaling:setDesiredCapacity"
                Parameters = { AutoScalingGroupName = name, DesiredCapacity = 0 }
                Retry      = [{ ErrorEquals = ["States.ALL"], IntervalSeconds = 60, MaxAttempts = 240, BackoffRate = 1 }]
                End        = true
              }
            }
          }
        ]
      }
    }
  })

  depends_on = [aws_iam_role_policy.stop]
}
