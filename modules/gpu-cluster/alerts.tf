# For people: the nodes themselves read their spot notice from the instance metadata and need none of this.

locals {
  event_patterns = {
    # The event names an instance but neither its group nor its tags, so that it cannot be narrowed to this run.
    interruption = jsonencode({
      source        = ["aws.ec2"]
      "detail-type" = ["EC2 Spot Instance Interruption Warning"]
    })
    group = jsonencode({
      source        = ["aws.autoscaling"]
      "detail-type" = ["EC2 Instance Launch Unsuccessful", "EC2 Instance Terminate Successful"]
      detail        = { AutoScalingGroupName = [local.name, local.memory_name] }
    })
  }
}

resource "aws_cloudwatch_event_rule" "run" {
  for_each = { for name, pattern in local.event_patterns : name => pattern if var.interruption_topic_arn != null }

  name          = "${local.name}-${each.key}"
  description   = each.key == "group" ? "Nodes that run ${var.run_id} lost or could not get" : "Spot interruption warnings, while run ${var.run_id} exists"
  event_pattern = each.value
  tags          = local.tags
}

resource "aws_cloudwatch_event_target" "topic" {
  for_each = aws_cloudwatch_event_rule.run

  rule      = each.value.name
  target_id = "topic"
  arn       = var.interruption_topic_arn
}
