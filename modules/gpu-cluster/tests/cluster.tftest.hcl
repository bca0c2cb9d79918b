# What the group, its templates and its guards look like, without AWS: the provider is mocked.

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

run "spot_with_an_on_demand_node" {
  command = plan

  assert {
    condition = (
      aws_autoscaling_group.nodes.desired_capacity == 4 &&
      aws_autoscaling_group.nodes.max_size == 4 &&
      aws_autoscaling_group.nodes.min_size == 0
    )
    error_message = "The group must ask for node_count nodes and be able to go to 0."
  }
  assert {
    condition = (
      aws_autoscaling_group.nodes.mixed_instances_policy[0].instances_distribution[0].on_demand_base_capacity == 1 &&
      aws_autoscaling_group.nodes.mixed_instances_policy[0].instances_distribution[0].on_demand_percentage_above_base_capacity == 0 &&
      aws_autoscaling_group.nodes.mixed_instances_policy[0].instances_distribution[0].spot_allocation_strategy == "price-capacity-optimized"
    )
    error_message = "One node is on-demand, the rest spot."
  }
  assert {
    condition     = aws_autoscaling_group.nodes.capacity_rebalance == false && contains(aws_autoscaling_group.nodes.suspended_processes, "AZRebalance")
    error_message = "Nothing but the run itself may replace a healthy node."
  }
  assert {
    condition = (
      aws_launch_template.node["g5.12xlarge"].metadata_options[0].http_tokens == "required" &&
      aws_launch_template.node["g5.12xlarge"].metadata_options[0].http_put_response_hop_limit == 1 &&
      aws_launch_template.node["g5.12xlarge"].instance_initiated_shutdown_behavior == "terminate"
    )
    error_message = "Nodes use IMDSv2 with one hop, and end when they shut down."
  }
  assert {
    condition = (
      aws_launch_template.node["g5.12xlarge"].block_device_mappings[0].ebs[0].encrypted == "true" &&
      aws_launch_template.node["g5.12xlarge"].block_device_mappings[0].ebs[0].volume_size == 200 &&
      aws_launch_template.node["g5.12xlarge"].block_device_mappings[0].device_name == "/dev/sda1"
    )
    error_message = "The root volume is encrypted and has the planned size."
  }
  assert {
    condition = (
      length(aws_launch_template.node["g5.12xlarge"].network_interfaces) == 1 &&
      aws_launch_template.node["g5.12xlarge"].network_interfaces[0].associate_public_ip_address == "false"
    )
    error_message = "A plain node has one interface without a public address."
  }
  assert {
    condition     = length(aws_placement_group.cluster) == 0
    error_message = "No placement group unless asked for."
  }
  assert {
    condition     = length(aws_s3_bucket.checkpoints) == 1 && aws_s3_bucket.checkpoints[0].force_destroy == false
    error_message = "The checkpoint bucket is created, and not destroyed with checkpoints in it."
  }
  assert {
    condition     = startswith(output.checkpoint_uri, "s3://scav-run-1-") && endswith(output.checkpoint_uri, "/run-1/checkpoints")
    error_message = "Checkpoints are under the run's prefix."
  }
  assert {
    condition     = length(aws_budgets_budget.run[0].notification) == 0 && one(aws_budgets_budget.run[0].cost_filter).values == tolist(["user:scav-run$run-1"])
    error_message = "The budget counts this run, and tells nobody without addresses."
  }
}

run "permissions_are_narrow" {
  command = plan

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement :
      alltrue([for action in statement.Action : !strcontains(action, "*")])
    ])
    error_message = "No action is a wildcard."
  }
  assert {
    condition = join(",", sort(flatten([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement : statement.Action
      if contains(statement.Resource, "*")
    ]))) == "ec2:DescribeInstances,ecr:GetAuthorizationToken"
    error_message = "Only calls that have no resource are allowed on all."
  }
  assert {
    condition = alltrue([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement :
      strcontains(statement.Resource[0], "/run-1/") if statement.Sid == "ReadAndWriteRun" || statement.Sid == "RemoveOldCheckpoints"
    ])
    error_message = "A node reads and writes under its run's prefix only."
  }
  assert {
    condition = (
      aws_vpc_security_group_egress_rule.https["0.0.0.0/0"].from_port == 443 &&
      aws_vpc_security_group_egress_rule.https["0.0.0.0/0"].to_port == 443 &&
      aws_vpc_security_group_ingress_rule.nodes.cidr_ipv4 == null
    )
    error_message = "Nothing comes in from outside; only HTTPS goes out."
  }
}

run "all_on_demand" {
  command = plan

  variables {
    on_demand_count = 4
  }

  assert {
    condition = (
      aws_autoscaling_group.nodes.mixed_instances_policy[0].instances_distribution[0].on_demand_base_capacity == 4 &&
      aws_autoscaling_group.nodes.mixed_instances_policy[0].instances_distribution[0].on_demand_percentage_above_base_capacity == 100
    )
    error_message = "No node is spot."
  }
  assert {
    condition     = output.plan_summary.spot_count == 0
    error_message = "The summary says so."
  }
}

run "efa_on_every_card_with_placement_group" {
  command = plan

  variables {
    instance_type   = "p4d.24xlarge"
    gpus_per_node   = 8
    efa_interfaces  = 4
    network_cards   = 4
    placement_group = true
  }

  override_data {
    target = data.aws_ec2_instance_type.node["p4d.24xlarge"]
    values = {
      default_vcpus           = 96
      efa_supported           = true
      efa_maximum_interfaces  = 4
      maximum_network_cards   = 4
      supported_architectures = ["x86_64"]
      gpus                    = [{ count = 8, manufacturer = "NVIDIA", memory_size = 40960, name = "A100" }]
    }
  }

  assert {
    condition     = join(",", [for interface in aws_launch_template.node["p4d.24xlarge"].network_interfaces : interface.interface_type]) == "efa,efa-only,efa-only,efa-only"
    error_message = "The first interface carries IP and EFA, the others EFA only."
  }
  assert {
    condition     = join(",", [for interface in aws_launch_template.node["p4d.24xlarge"].network_interfaces : "${interface.network_card_index}:${interface.device_index}"]) == "0:0,1:1,2:1,3:1"
    error_message = "One interface per card; device 0 only on the first."
  }
  assert {
    condition     = alltrue([for interface in aws_launch_template.node["p4d.24xlarge"].network_interfaces : interface.associate_public_ip_address == null || interface.associate_public_ip_address == ""])
    error_message = "EC2 refuses the public address argument with several interfaces."
  }
  assert {
    condition     = aws_placement_group.cluster[0].strategy == "cluster" && aws_autoscaling_group.nodes.placement_group == "scav-run-1"
    error_message = "The nodes share a cluster placement group."
  }
}

run "efa_on_fewer_cards_than_there_are" {
  command = plan

  variables {
    instance_type  = "p6-b300.48xlarge"
    gpus_per_node  = 8
    efa_interfaces = 2
    network_cards  = 3
  }

  override_data {
    target = data.aws_ec2_instance_type.node["p6-b300.48xlarge"]
    values = {
      default_vcpus           = 192
      efa_supported           = true
      efa_maximum_interfaces  = 2
      maximum_network_cards   = 3
      supported_architectures = ["x86_64"]
      gpus                    = [{ count = 8, manufacturer = "NVIDIA", memory_size = 275000, name = "B300" }]
    }
  }

  assert {
    condition     = join(",", [for interface in aws_launch_template.node["p6-b300.48xlarge"].network_interfaces : "${interface.network_card_index}:${interface.interface_type}"]) == "0:interface,1:efa-only,2:efa-only"
    error_message = "Card 0 carries IP, the others EFA."
  }
}

run "overrides_follow_the_chosen_type" {
  command = plan

  variables {
    instance_type           = "g6e.24xlarge"
    instance_type_overrides = ["g6e.12xlarge"]
    efa_interfaces          = 2
    network_cards           = 2
  }

  override_data {
    target = data.aws_ec2_instance_type.node["g6e.24xlarge"]
    values = {
      default_vcpus           = 96
      efa_supported           = true
      efa_maximum_interfaces  = 2
      maximum_network_cards   = 2
      supported_architectures = ["x86_64"]
      gpus                    = [{ count = 4, manufacturer = "NVIDIA", memory_size = 49152, name = "L40S" }]
    }
  }
  override_data {
    target = data.aws_ec2_instance_type.node["g6e.12xlarge"]
    values = {
      default_vcpus           = 48
      efa_supported           = true
      efa_maximum_interfaces  = 1
      maximum_network_cards   = 1
      supported_architectures = ["x86_64"]
      gpus                    = [{ count = 4, manufacturer = "NVIDIA", memory_size = 49152, name = "L40S" }]
    }
  }

  assert {
    condition     = join(",", [for override in aws_autoscaling_group.nodes.mixed_instances_policy[0].launch_template[0].override : override.instance_type]) == "g6e.24xlarge,g6e.12xlarge"
    error_message = "The chosen type comes first, the overrides in order."
  }
  assert {
    condition     = length(aws_launch_template.node["g6e.24xlarge"].network_interfaces) == 2 && length(aws_launch_template.node["g6e.12xlarge"].network_interfaces) == 1
    error_message = "Each type has as many EFA interfaces as it has cards for."
  }
}

run "existing_bucket_and_budget_alerts" {
  command = plan

  variables {
    checkpoint_bucket = "team-checkpoints"
    budget_emails     = ["ml@example.com"]
  }

  assert {
    condition     = length(aws_s3_bucket.checkpoints) == 0 && length(aws_s3_bucket_policy.checkpoints) == 0
    error_message = "An existing bucket is left as it is."
  }
  assert {
    condition     = output.checkpoint_uri == "s3://team-checkpoints/run-1/checkpoints"
    error_message = "Checkpoints go to the given bucket."
  }
  assert {
    condition     = length(aws_budgets_budget.run[0].notification) == 2
    error_message = "Two alerts."
  }
}

run "settings_reach_the_node_as_data" {
  command = plan

  variables {
    container_command = ["train.py", "'; $(reboot) `reboot` $${run_id} %%{ if true }\nSCAV_RUN\nreboot"]
  }

  assert {
    condition     = length(regexall("reboot", local.start_scripts.gpu)) == 0
    error_message = "No setting may become shell code."
  }
  assert {
    condition = (
      regex("(?s)<<'SCAV_RUN'\n([A-Za-z0-9+/=]+)\nSCAV_RUN\n", local.start_scripts.gpu)[0] == base64gzip(local.roles.gpu.run) &&
      jsondecode(local.roles.gpu.run).command[1] == var.container_command[1]
    )
    error_message = "The node gets the command as it was written."
  }
  assert {
    condition     = aws_launch_template.node["g5.12xlarge"].user_data == base64gzip(local.start_scripts.gpu)
    error_message = "The script is what the node gets."
  }
}

run "applied_group_pins_its_template" {
  assert {
    condition     = aws_autoscaling_group.nodes.mixed_instances_policy[0].launch_template[0].launch_template_specification[0].version == "3"
    error_message = "The group names the version of its template, not $Latest."
  }
  assert {
    condition     = output.autoscaling_group_name == "scav-run-1" && output.log_group_name == "/scav/run-1"
    error_message = "Names carry the run."
  }

  assert {
    condition     = strcontains(output.commands.stop, "--max-size 0 --desired-capacity 0 --auto-scaling-group-name scav-run-1 ") && output.model_uri == "${output.checkpoint_uri}/"
    error_message = "The outputs name the command that stops the run for good, and where the model is."
  }

  assert {
    condition     = endswith(output.console_url, "#AutoScalingGroupDetails:id=scav-run-1;view=activity")
    error_message = "The link shows the group in the console."
  }
}
