# What is created only when asked for, without AWS: the provider is mocked.

mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws", dns_suffix = "amazonaws.com" }
  }
  mock_data "aws_region" {
    defaults = { id = "us-east-1" }
  }
  mock_data "aws_subnet" {
    defaults = { vpc_id = "vpc-0123456789abcdef0", availability_zone_id = "use1-az4" }
  }
  mock_data "aws_ami" {
    defaults = { architecture = "x86_64", root_device_name = "/dev/sda1" }
  }
  mock_data "aws_ec2_instance_type" {
    defaults = {
      default_vcpus           = 48
      efa_supported           = true
      efa_maximum_interfaces  = 1
      maximum_network_cards   = 1
      supported_architectures = ["x86_64"]
      gpus                    = [{ count = 4, manufacturer = "NVIDIA", memory_size = 24576, name = "A10G" }]
    }
  }
  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["use1-az4", "use1-az6"] }
  }
  mock_data "aws_servicequotas_service_quota" {
    defaults = { value = 10000 }
  }
  mock_data "aws_ssm_parameter" {
    defaults = { insecure_value = "ami-0fedcba9876543210" }
  }
  mock_data "aws_sagemaker_prebuilt_ecr_image" {
    defaults = { registry_id = "763104351884", registry_path = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:latest" }
  }
  mock_data "aws_ecr_image" {
    defaults = { image_digest = "sha256:89abcdef0123456789abcdef0123456789abcdef0123456789abcdef01234567" }
  }
  mock_data "aws_vpcs" {
    defaults = { ids = ["vpc-0123456789abcdef0"] }
  }
  mock_data "aws_ec2_managed_prefix_list" {
    defaults = { id = "pl-63a5400a" }
  }
  mock_data "aws_route_tables" {
    defaults = { ids = ["rtb-0123456789abcdef0"] }
  }
  mock_data "aws_route_table" {
    defaults = { routes = [{ cidr_block = "0.0.0.0/0", gateway_id = "" }] }
  }
  mock_data "aws_subnets" {
    defaults = { ids = ["subnet-0000000000000000c"] }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/scav-run-1-stop" }
  }
  mock_resource "aws_cloudwatch_metric_alarm" {
    defaults = { arn = "arn:aws:cloudwatch:us-east-1:123456789012:alarm:scav-run-1-silent" }
  }
  mock_resource "aws_sfn_state_machine" {
    defaults = { arn = "arn:aws:states:us-east-1:123456789012:stateMachine:scav-run-1-silent" }
  }
  mock_resource "aws_iam_instance_profile" {
    defaults = { arn = "arn:aws:iam::123456789012:instance-profile/scav-run-1" }
  }
  mock_resource "aws_launch_template" {
    defaults = { latest_version = 3 }
  }
}

variables {
  run_id                      = "run-1"
  vpc_id                      = "vpc-0123456789abcdef0"
  subnet_ids                  = ["subnet-0000000000000000a", "subnet-0000000000000000b"]
  ami_id                      = "ami-0123456789abcdef0"
  container_image             = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/train@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  container_command           = ["train.py", "--epochs", "90"]
  availability_zone_id        = "use1-az4"
  instance_type               = "g5.12xlarge"
  node_count                  = 4
  gpus_per_node               = 4
  on_demand_count             = 1
  root_volume_gib             = 200
  checkpoint_interval_seconds = 600
  global_batch                = 1024
  gpu_batch                   = 64
  max_runtime_seconds         = 36000
  budget_usd                  = 120
}

run "nothing_unasked" {
  command = plan

  assert {
    condition = (
      length(aws_autoscaling_group.memory) == 0 && length(aws_launch_template.memory) == 0 &&
      length(aws_cloudwatch_event_rule.run) == 0 &&
      length(aws_launch_template.node["g5.12xlarge"].capacity_reservation_specification) == 0
    )
    error_message = "No memory nodes, alerts or reservation unless asked for."
  }
  assert {
    condition     = output.memory_autoscaling_group_name == null && local.run.memory_group == null
    error_message = "The nodes know that there is no checkpoint tier."
  }
  assert {
    condition     = strcontains(local.start_scripts.gpu, "\nshutdown -h +10\n")
    error_message = "A node that does not reach AWS ends by itself."
  }
  assert {
    condition     = local.run.max_silence_seconds == 1800 && local.run.topic == null && local.run.max_wait_seconds == 3600
    error_message = "A job may be silent for half an hour, and nodes wait an hour."
  }
  assert {
    condition     = local.longest_seconds == 14400 + 1800 + 3600 + 36000 + 900
    error_message = "AWS stops the run when capacity, start, the other nodes and the job had all their time."
  }
}

run "checkpoint_tier" {
  command = plan

  variables {
    checkpoint_tier = { instance_type = "r6i.4xlarge", node_count = 2 }
  }

  assert {
    condition = (
      aws_autoscaling_group.memory[0].desired_capacity == 2 && aws_autoscaling_group.memory[0].min_size == 0 &&
      length(aws_autoscaling_group.memory[0].mixed_instances_policy) == 0 &&
      aws_launch_template.memory[0].instance_type == "r6i.4xlarge"
    )
    error_message = "Memory nodes are on-demand and can go to 0."
  }
  assert {
    condition = (
      aws_launch_template.memory[0].metadata_options[0].http_tokens == "required" &&
      aws_launch_template.memory[0].block_device_mappings[0].ebs[0].encrypted == "true" &&
      aws_launch_template.memory[0].network_interfaces[0].associate_public_ip_address == "false"
    )
    error_message = "Memory nodes are as closed as the others."
  }
  assert {
    condition     = strcontains(local.start_scripts.memory, "for service in deadline memory; do") && strcontains(local.start_scripts.gpu, "for service in deadline watch train; do")
    error_message = "Each node starts the services of its role."
  }
  assert {
    condition = anytrue([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement :
      join(",", [for arn in statement.Resource : element(split("/", arn), 1)]) == "scav-run-1,scav-run-1-memory"
      if statement.Sid == "EndRunAndReplaceNodes"
    ])
    error_message = "The run may scale both of its groups, and no other."
  }
  assert {
    condition     = output.memory_autoscaling_group_name == "scav-run-1-memory" && output.plan_summary.checkpoint_tier.node_count == 2
    error_message = "The outputs name the tier."
  }
}

run "capacity_reservation" {
  command = plan

  variables {
    capacity_reservation_id = "cr-0123456789abcdef0"
    on_demand_count         = 4
  }

  assert {
    condition     = aws_launch_template.node["g5.12xlarge"].capacity_reservation_specification[0].capacity_reservation_target[0].capacity_reservation_id == "cr-0123456789abcdef0"
    error_message = "The nodes start in the reservation."
  }
}

run "alerts_to_a_topic" {
  command = plan

  variables {
    interruption_topic_arn = "arn:aws:sns:us-east-1:123456789012:training"
  }

  assert {
    condition     = join(",", keys(aws_cloudwatch_event_rule.run)) == "group,interruption"
    error_message = "One rule for spot warnings, one for this run's group."
  }
  assert {
    condition     = jsondecode(aws_cloudwatch_event_rule.run["group"].event_pattern).detail.AutoScalingGroupName[0] == "scav-run-1"
    error_message = "The second rule is about this run only."
  }
  assert {
    condition     = alltrue([for target in aws_cloudwatch_event_target.topic : target.arn == "arn:aws:sns:us-east-1:123456789012:training"])
    error_message = "Both go to the topic."
  }
  assert {
    condition = local.run.topic == "arn:aws:sns:us-east-1:123456789012:training" && anytrue([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement :
      join(",", concat(statement.Action, statement.Resource)) == "sns:Publish,arn:aws:sns:us-east-1:123456789012:training"
    ])
    error_message = "The nodes may tell the topic why the run failed."
  }
}

run "own_key_and_boundary" {
  command = plan

  variables {
    kms_key_arn              = "arn:aws:kms:us-east-1:123456789012:key/0123abcd"
    permissions_boundary_arn = "arn:aws:iam::123456789012:policy/boundary"
    checkpoint_tier          = { instance_type = "r6i.4xlarge", node_count = 1 }
    checkpoint_expiry_days   = 30
  }

  assert {
    condition = (
      one(aws_s3_bucket_server_side_encryption_configuration.checkpoints[0].rule).apply_server_side_encryption_by_default[0].kms_master_key_id == var.kms_key_arn &&
      aws_cloudwatch_log_group.run.kms_key_id == var.kms_key_arn &&
      aws_launch_template.node["g5.12xlarge"].block_device_mappings[0].ebs[0].kms_key_id == var.kms_key_arn &&
      aws_launch_template.memory[0].block_device_mappings[0].ebs[0].kms_key_id == var.kms_key_arn
    )
    error_message = "The key is used wherever data rests."
  }
  assert {
    condition     = anytrue([for statement in jsondecode(aws_iam_role_policy.node.policy).Statement : statement.Resource[0] == var.kms_key_arn])
    error_message = "The nodes may use the key."
  }
  assert {
    condition     = aws_iam_role.node.permissions_boundary == var.permissions_boundary_arn
    error_message = "The boundary is on the role."
  }
  assert {
    condition     = aws_s3_bucket_lifecycle_configuration.checkpoints[0].rule[0].expiration[0].days == 30
    error_message = "Checkpoints expire when asked to."
  }
}

run "data_from_everywhere" {
  command = plan

  variables {
    data = [
      { name = "train", uri = "s3://somebody/imagenet/train/", gib = 150 },
      { name = "all-of_it", uri = "s3://whole-bucket", gib = 10 },
      { name = "text", uri = "fs-0123456789abcdef0/abcdefgh", gib = 0 },
      { name = "disk", uri = "snap-0123456789abcdef0", gib = 0 },
    ]
    security_group_ids     = ["sg-0123456789abcdef0"]
    policy_arns            = ["arn:aws:iam::123456789012:policy/read-a-secret"]
    checkpoint_bucket      = "somebodys-bucket"
    checkpoint_kms_key_arn = "arn:aws:kms:us-east-1:123456789012:key/0123abcd"
  }

  assert {
    condition = join(" ", flatten([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement : statement.Resource if statement.Sid == "ReadData"
    ])) == "arn:aws:s3:::whole-bucket/* arn:aws:s3:::somebody/imagenet/train/*"
    error_message = "The nodes read what is named: not what stands beside it, and nothing of a bucket that only begins alike."
  }
  assert {
    condition = join(" ", [
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement : join(":", [statement.Sid, statement.Resource[0], statement.Condition.StringLike["s3:prefix"][0]])
      if startswith(statement.Sid, "ListData")
    ]) == "ListDataAllOfIt:arn:aws:s3:::whole-bucket:* ListDataTrain:arn:aws:s3:::somebody:imagenet/train/*"
    error_message = "They list that, too."
  }
  assert {
    condition     = !anytrue([for statement in local.data_statements : anytrue([for action in statement.Action : !contains(["s3:GetObject", "s3:ListBucket"], action)])])
    error_message = "Data is only read."
  }
  assert {
    condition = (
      join(" ", compact([for source in local.run.data : source.copy])) == "s3://somebody/imagenet/train s3://whole-bucket" &&
      join(" ", compact([for source in local.run.data : source.mount])) == "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh" &&
      join(" ", compact([for source in local.run.data : source.volume])) == "/dev/sdf" &&
      local.run.environment.SCAV_DATA_DIR == "/data"
    )
    error_message = "The nodes know what to copy, mount and look for."
  }
  assert {
    condition = (
      aws_launch_template.node["g5.12xlarge"].block_device_mappings[1].device_name == "/dev/sdf" &&
      aws_launch_template.node["g5.12xlarge"].block_device_mappings[1].ebs[0].snapshot_id == "snap-0123456789abcdef0"
    )
    error_message = "A snapshot is a volume of every node."
  }
  assert {
    condition     = contains(aws_launch_template.node["g5.12xlarge"].network_interfaces[0].security_groups, "sg-0123456789abcdef0")
    error_message = "The nodes are members of the file system's group."
  }
  assert {
    condition     = keys(aws_iam_role_policy_attachment.extra)[0] == "arn:aws:iam::123456789012:policy/read-a-secret"
    error_message = "The role has what else the job needs."
  }
  assert {
    condition     = anytrue([for statement in jsondecode(aws_iam_role_policy.node.policy).Statement : statement.Sid == "UseKey" && statement.Resource[0] == var.checkpoint_kms_key_arn])
    error_message = "The nodes may use the key of somebody's bucket."
  }
  assert {
    condition     = local.longest_seconds == 14400 + 1800 + 160 * 20 + 3600 + 36000 + 900 && local.run.data_seconds == 3200
    error_message = "Copying has its time before the run's begins."
  }
}

run "the_longest_command_with_data" {
  command = plan

  variables {
    # Nothing in it repeats, so that nothing is compressed.
    container_command = [join("", [for number in range(45) : sha256(tostring(number))])]
    data              = [for name in ["a", "b", "c"] : { name = name, uri = "s3://bucket/${sha256(name)}/", gib = 1 }]
  }

  assert {
    condition     = local.user_data_bytes.gpu <= 16384
    error_message = "User data has room for the longest command and for data."
  }
}

run "a_probe" {
  command = plan

  variables {
    budget_usd           = null
    bucket_force_destroy = true
    checkpoint_lifecycle = false
    replace_lost_nodes   = false
    max_failures         = 1
    heartbeat_seconds    = 15
  }

  assert {
    condition     = length(aws_budgets_budget.run) == 0 && length(aws_s3_bucket_lifecycle_configuration.checkpoints) == 0
    error_message = "A probe needs neither a budget nor a lifecycle."
  }
  assert {
    condition     = aws_s3_bucket.checkpoints[0].force_destroy
    error_message = "Nothing of a probe is left behind."
  }
  assert {
    condition     = contains(aws_autoscaling_group.nodes.suspended_processes, "ReplaceUnhealthy")
    error_message = "A node that ended itself is not replaced."
  }
  assert {
    condition     = endswith(output.results_uri, "/run-1/results") && endswith(output.heartbeats_uri, "/run-1/heartbeats")
    error_message = "Whoever collects the results knows where they are."
  }
}

run "on_demand_nodes_take_over" {
  command = plan

  variables {
    policy_file       = "README.md"
    container_command = [join("", [for number in range(45) : sha256(tostring(number))])]
    data              = [{ name = "train", uri = "s3://somebody/imagenet/train/", gib = 150 }]
  }

  assert {
    condition = (
      aws_autoscaling_group.fallback[0].name == "scav-run-1-on-demand" && aws_autoscaling_group.fallback[0].desired_capacity == 0 &&
      aws_autoscaling_group.fallback[0].max_size == 4 && length(aws_autoscaling_group.fallback[0].mixed_instances_policy) == 0
    )
    error_message = "On-demand nodes wait in a group of their own, which is empty."
  }
  assert {
    condition = (
      join(",", keys(aws_scheduler_schedule.stop)) == "fallback,gpu" && join(",", keys(aws_autoscaling_schedule.stop)) == "fallback,gpu" &&
      join(",", keys(local.listened_to)) == "fallback,gpu"
    )
    error_message = "Whatever stops the one group stops the other."
  }
  assert {
    condition = strcontains(
      [for query in aws_cloudwatch_metric_alarm.silent.metric_query : query.expression if query.id == "silent_nodes"][0],
      "FILL(nodes_fallback, 0) + FILL(nodes_gpu, 0)"
    )
    error_message = "Nodes of both groups count as there."
  }
  assert {
    condition = anytrue([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement :
      join(",", statement.Action) == "autoscaling:DeleteScheduledAction,autoscaling:PutScheduledUpdateGroupAction" && endswith(statement.Resource[0], "/scav-run-1-on-demand")
    ]) && !strcontains(aws_iam_role_policy.node.policy, "UpdateAutoScalingGroup\"")
    error_message = "The nodes may order on-demand nodes, and change nothing else of a group."
  }
  assert {
    condition     = local.run.policy.key == "policy/${local.run.policy.sha256}.json" && endswith(aws_s3_object.policy[0].key, local.run.policy.key) && local.run.fallback_group == "scav-run-1-on-demand"
    error_message = "The nodes know the policy by its hash."
  }
  assert {
    condition     = local.user_data_bytes.gpu <= 16384
    error_message = "User data has room for the longest command, data and a policy."
  }
}

run "no_way_out_of_the_subnets" {
  command = plan

  override_data {
    target = data.aws_route_tables.leading
    values = { ids = ["rtb-0000000000000000f"] }
  }

  expect_failures = [check.route_to_aws, check.s3_gateway_endpoint]
}

run "an_internet_gateway_is_no_way_out_without_a_public_address" {
  command = plan

  override_data {
    target = data.aws_route_table.used
    values = { routes = [{ cidr_block = "0.0.0.0/0", gateway_id = "igw-0123456789abcdef0" }] }
  }

  expect_failures = [check.route_to_aws]
}

run "what_storage_costs_and_keeps" {
  command = plan

  variables {
    root_volume_mibps = 500
  }

  assert {
    condition     = aws_launch_template.node["g5.12xlarge"].block_device_mappings[0].ebs[0].throughput == 500
    error_message = "The volume is as fast as it was ordered."
  }
  assert {
    condition     = aws_s3_bucket_lifecycle_configuration.checkpoints[0].rule[0].noncurrent_version_expiration[0].noncurrent_days == 1
    error_message = "What a checkpoint replaced is gone after a day."
  }
  assert {
    condition     = aws_cloudwatch_log_group.run.skip_destroy
    error_message = "Logs outlive the run."
  }
  assert {
    condition     = aws_autoscaling_group.nodes.timeouts.delete == "60m"
    error_message = "Large nodes have an hour to end."
  }
  assert {
    condition     = data.aws_ami.node.include_deprecated
    error_message = "A machine image that AWS has deprecated meanwhile is still found."
  }
}

run "a_probe_leaves_no_logs" {
  command = plan

  variables {
    bucket_force_destroy = true
  }

  assert {
    condition     = !aws_cloudwatch_log_group.run.skip_destroy
    error_message = "Logs of a probe go with it."
  }
}
