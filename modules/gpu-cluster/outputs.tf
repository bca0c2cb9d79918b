output "autoscaling_group_name" {
  description = "Auto Scaling group of the nodes."
  value       = aws_autoscaling_group.nodes.name
}

output "memory_autoscaling_group_name" {
  description = "Auto Scaling group of the memory nodes; null without checkpoint_tier."
  value       = one(aws_autoscaling_group.memory[*].name)
}

output "fallback_autoscaling_group_name" {
  description = "Auto Scaling group of the on-demand nodes that take over from spot nodes; null without policy_file."
  value       = one(aws_autoscaling_group.fallback[*].name)
}

output "launch_template_id" {
  description = "Launch template of instance_type."
  value       = aws_launch_template.node[var.instance_type].id
}

output "launch_template_ids" {
  description = "Launch template of every instance type, by type."
  value       = { for type, template in aws_launch_template.node : type => template.id }
}

output "security_group_id" {
  description = "Security group of the nodes."
  value       = aws_security_group.nodes.id
}

output "role_arn" {
  description = "IAM role of the nodes; grant it access to the training data."
  value       = aws_iam_role.node.arn
}

output "checkpoint_bucket" {
  description = "Bucket of the checkpoints, created or given."
  value       = local.bucket_name
}

output "checkpoint_uri" {
  description = "Where the run's checkpoints are."
  value       = local.checkpoint_uri
}

output "results_uri" {
  description = "Where files that the job writes to SCAV_RESULTS_DIR are, by instance."
  value       = "s3://${local.bucket_name}/${var.run_id}/results"
}

output "heartbeats_uri" {
  description = "Where each node says what it is doing."
  value       = "s3://${local.bucket_name}/${var.run_id}/heartbeats"
}

output "log_group_name" {
  description = "CloudWatch log group of the run."
  value       = aws_cloudwatch_log_group.run.name
}

output "model_uri" {
  description = "Where the trained model is once the run has succeeded: what the job wrote to SCAV_CHECKPOINT_DIR."
  value       = "${local.checkpoint_uri}/"
}

output "console_url" {
  description = "The group in the AWS console: its nodes, and why any came or went."
  value       = "https://${local.region}.${local.console_domain}/ec2/home?region=${local.region}#AutoScalingGroupDetails:id=${aws_autoscaling_group.nodes.name};view=activity"
}

output "commands" {
  description = "What to type to watch the run, read its logs, fetch its model and stop it, without scav."
  value = {
    watch = "aws s3 cp --recursive s3://${local.bucket_name}/${var.run_id}/heartbeats/ heartbeats/ --region ${local.region}"
    logs  = "aws logs tail ${aws_cloudwatch_log_group.run.name} --follow --region ${local.region}"
    model = "aws s3 cp --recursive ${local.checkpoint_uri}/ model/ --region ${local.region}"
    # GPU nodes first: they may still hand their last checkpoint over.
    stop = join(" && ", [
      for group in concat([aws_autoscaling_group.nodes.name], aws_autoscaling_group.fallback[*].name, aws_autoscaling_group.memory[*].name) :
      "aws autoscaling update-auto-scaling-group --min-size 0 --max-size 0 --desired-capacity 0 --auto-scaling-group-name ${group} --region ${local.region}"
    ])
  }
}

output "run_id" {
  description = "Name of the run."
  value       = var.run_id
}

output "plan_summary" {
  description = "What was asked for, in one object, for policy checks and dashboards."
  value = {
    run_id               = var.run_id
    region               = local.region
    availability_zone_id = var.availability_zone_id
    instance_types       = local.instance_types
    node_count           = var.node_count
    gpus_per_node        = var.gpus_per_node
    on_demand_count      = var.on_demand_count
    spot_count           = var.node_count - var.on_demand_count
    efa_interfaces       = var.efa_interfaces
    placement_group      = var.placement_group
    max_runtime_seconds  = var.max_runtime_seconds
    budget_usd           = var.budget_usd
    checkpoint_tier      = var.checkpoint_tier
  }
}
