# What the module refuses, and that it says so before anything is created.

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
      efa_supported           = false
      efa_maximum_interfaces  = 0
      maximum_network_cards   = 1
      supported_architectures = ["x86_64"]
      gpus                    = [{ count = 4, manufacturer = "NVIDIA", memory_size = 24576, name = "A10G" }]
    }
  }
  mock_data "aws_ec2_instance_type_offerings" {
    defaults = { locations = ["use1-az4"] }
  }
  mock_data "aws_servicequotas_service_quota" {
    defaults = { value = 192 }
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
}

variables {
  run_id                      = "run-1"
  vpc_id                      = "vpc-0123456789abcdef0"
  subnet_ids                  = ["subnet-0000000000000000a", "subnet-0000000000000000b"]
  ami_id                      = "ami-0123456789abcdef0"
  container_image             = "registry.example.com/team/train@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  availability_zone_id        = "use1-az4"
  instance_type               = "g5.12xlarge"
  node_count                  = 4
  gpus_per_node               = 4
  on_demand_count             = 0
  root_volume_gib             = 200
  checkpoint_interval_seconds = 600
  global_batch                = 1024
  gpu_batch                   = 64
  max_runtime_seconds         = 36000
  budget_usd                  = 120
}

run "values_that_are_no_values" {
  command = plan

  variables {
    run_id                      = "Run_1"
    vpc_id                      = "my-vpc"
    subnet_ids                  = ["default"]
    ami_id                      = "latest"
    container_image             = "registry.example.com/team/train:latest"
    availability_zone_id        = "us-east-1a"
    instance_type               = "g5"
    instance_type_overrides     = ["g5.4xlarge", "g5.4xlarge"]
    node_count                  = 0
    gpus_per_node               = 1.5
    on_demand_count             = -1
    efa_interfaces              = -1
    network_cards               = 0
    root_volume_gib             = 1
    root_volume_mibps           = 100
    checkpoint_bucket           = "Not A Bucket"
    checkpoint_interval_seconds = 0
    global_batch                = 0
    gpu_batch                   = 0
    accumulation_steps          = 0
    learning_rate_scale         = 0
    strategy                    = { sharding = "all", tensor_parallel = 1, pipeline = 1, recompute = "none" }
    max_runtime_seconds         = 0
    budget_usd                  = 0
    budget_emails               = ["nobody"]
    tags                        = { "aws:x" = "y" }
    permissions_boundary_arn    = "boundary"
    kms_key_arn                 = "alias/key"
    https_egress_cidr_blocks    = ["everywhere"]
    log_retention_days          = 2
    checkpoint_expiry_days      = 0
    max_restarts                = -1
    max_failures                = 0
    heartbeat_seconds           = 0
    checkpoint_tier             = { instance_type = "r6i.4xlarge", node_count = 0 }
    capacity_reservation_id     = "mine"
    interruption_topic_arn      = "topic"
    security_group_ids          = ["default"]
    data                        = [{ name = "all", uri = "s3://bucket/*", gib = 1 }]
    checkpoint_kms_key_arn      = "alias/key"
    policy_arns                 = ["AdministratorAccess"]
    policy_file                 = "../scav.policy.json"
  }

  expect_failures = [
    var.security_group_ids, var.data, var.checkpoint_kms_key_arn, var.policy_arns, var.policy_file,
    var.run_id, var.vpc_id, var.subnet_ids, var.ami_id, var.container_image, var.availability_zone_id,
    var.instance_type, var.instance_type_overrides, var.node_count, var.gpus_per_node, var.on_demand_count,
    var.efa_interfaces, var.network_cards, var.root_volume_gib, var.root_volume_mibps, var.checkpoint_bucket,
    var.checkpoint_interval_seconds, var.global_batch, var.gpu_batch, var.accumulation_steps,
    var.learning_rate_scale, var.strategy, var.max_runtime_seconds, var.budget_usd, var.budget_emails, var.tags,
    var.permissions_boundary_arn, var.kms_key_arn,
    var.https_egress_cidr_blocks, var.log_retention_days, var.checkpoint_expiry_days, var.max_restarts,
    var.max_failures, var.heartbeat_seconds, var.checkpoint_tier, var.capacity_reservation_id,
    var.interruption_topic_arn,
  ]
}

run "no_subnet_in_the_planned_zone" {
  command = plan

  variables {
    availability_zone_id = "use1-az1"
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "type_not_offered_in_the_zone" {
  command = plan

  override_data {
    target = data.aws_ec2_instance_type_offerings.zone
    values = { locations = ["use1-az6"] }
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "placement_group_over_two_zones" {
  command = plan

  variables {
    availability_zone_id = ""
    placement_group      = true
  }

  override_data {
    target = data.aws_subnet.candidate["subnet-0000000000000000b"]
    values = { vpc_id = "vpc-0123456789abcdef0", availability_zone_id = "use1-az6" }
  }
  override_data {
    target = data.aws_ec2_instance_type_offerings.zone
    values = { locations = ["use1-az4", "use1-az6"] }
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "more_on_demand_nodes_than_nodes" {
  command = plan

  variables {
    on_demand_count = 5
  }

  expect_failures = [aws_autoscaling_group.nodes, check.on_demand_quota]
}

run "subnet_of_another_vpc" {
  command = plan

  override_data {
    target = data.aws_subnet.candidate["subnet-0000000000000000b"]
    values = { vpc_id = "vpc-0000000000000000f", availability_zone_id = "use1-az4" }
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "efa_where_there_is_none" {
  command = plan

  variables {
    efa_interfaces = 1
  }

  expect_failures = [aws_launch_template.node]
}

run "override_with_another_gpu" {
  command = plan

  variables {
    instance_type_overrides = ["g6.12xlarge"]
  }

  override_data {
    target = data.aws_ec2_instance_type.node["g6.12xlarge"]
    values = {
      supported_architectures = ["x86_64"]
      gpus                    = [{ count = 4, manufacturer = "NVIDIA", memory_size = 22888, name = "L4" }]
    }
  }

  expect_failures = [aws_launch_template.node]
}

run "image_for_another_processor" {
  command = plan

  override_data {
    target = data.aws_ami.node
    values = { architecture = "arm64", root_device_name = "/dev/xvda" }
  }

  expect_failures = [aws_launch_template.node]
}

run "quota_too_small_is_a_warning" {
  command = plan

  variables {
    node_count = 5
  }

  expect_failures = [check.spot_quota]
}

run "reservation_of_spot_nodes" {
  command = plan

  variables {
    capacity_reservation_id = "cr-0123456789abcdef0"
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "reservation_with_a_placement_group" {
  command = plan

  variables {
    capacity_reservation_id = "cr-0123456789abcdef0"
    on_demand_count         = 4
    placement_group         = true
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "reservation_with_overrides" {
  command = plan

  variables {
    capacity_reservation_id = "cr-0123456789abcdef0"
    on_demand_count         = 4
    instance_type_overrides = ["g5.24xlarge"]
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "memory_nodes_of_another_processor" {
  command = plan

  variables {
    checkpoint_tier = { instance_type = "r7g.4xlarge", node_count = 1 }
  }

  override_data {
    target = data.aws_ec2_instance_type.memory[0]
    values = { supported_architectures = ["arm64"] }
  }

  expect_failures = [aws_launch_template.memory]
}

run "a_command_too_long_for_user_data" {
  command = plan

  variables {
    container_command = [for number in range(600) : sha256(tostring(number))]
  }

  expect_failures = [var.container_command]
}
