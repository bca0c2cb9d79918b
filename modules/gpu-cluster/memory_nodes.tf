# The optional checkpoint tier: on-demand nodes without GPUs that take checkpoints into memory and copy them to S3 behind.
# A GPU node that got a spot notice hands its checkpoint over at network speed instead of racing S3 for two minutes.

locals {
  memory_name = "${local.name}-memory"
}

data "aws_ec2_instance_type" "memory" {
  count = var.checkpoint_tier == null ? 0 : 1

  instance_type = var.checkpoint_tier.instance_type
}

resource "aws_launch_template" "memory" {
  count = var.checkpoint_tier == null ? 0 : 1

  name                                 = local.memory_name
  description                          = "Memory node of training run ${var.run_id}"
  image_id                             = local.ami_id
  instance_type                        = var.checkpoint_tier.instance_type
  instance_initiated_shutdown_behavior = "terminate"
  update_default_version               = true
  ebs_optimized                        = true
  user_data                            = local.user_data.memory
  tags                                 = local.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.node.arn
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = data.aws_ami.node.root_device_name

    ebs {
      volume_type           = "gp3"
      volume_size           = var.root_volume_gib
      encrypted             = true
      kms_key_id            = var.kms_key_arn
      delete_on_termination = true
    }
  }

  network_interfaces {
    description                 = local.memory_name
    device_index                = 0
    security_groups             = [aws_security_group.nodes.id]
    delete_on_termination       = true
    associate_public_ip_address = local.use_default_vpc
  }

  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume", "network-interface"])

    content {
      resource_type = tag_specifications.value
      tags          = merge(local.tags, { Name = local.memory_name })
    }
  }

  lifecycle {
    precondition {
      condition     = contains(data.aws_ec2_instance_type.memory[0].supported_architectures, data.aws_ami.node.architecture)
      error_message = "${local.ami_id} is built for ${data.aws_ami.node.architecture}, which ${var.checkpoint_tier.instance_type} does not run."
    }
  }
}

resource "aws_autoscaling_group" "memory" {
  count = var.checkpoint_tier == null ? 0 : 1

  name                      = local.memory_name
  min_size                  = 0
  max_size                  = var.checkpoint_tier.node_count
  desired_capacity          = var.checkpoint_tier.node_count
  vpc_zone_identifier       = keys(local.subnets)
  health_check_type         = "EC2"
  suspended_processes       = ["AZRebalance"]
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = aws_launch_template.memory[0].id
    version = aws_launch_template.memory[0].latest_version
  }

  dynamic "tag" {
    for_each = merge(local.tags, { Name = local.memory_name })

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
    # The run scales this group to 0 together with the GPU nodes.
    ignore_changes = [desired_capacity]
  }

  depends_on = [
    aws_cloudwatch_log_group.run,
    aws_iam_role_policy.node,
    aws_iam_role_policy.stop,
    aws_iam_role_policy_attachment.ssm,
    aws_s3_bucket_policy.checkpoints,
    aws_scheduler_schedule.stop,
    aws_vpc_security_group_egress_rule.https,
    aws_vpc_security_group_egress_rule.nodes,
    aws_vpc_security_group_egress_rule.s3,
    aws_vpc_security_group_ingress_rule.nodes,
  ]
}
