# Nothing named: the network, the machine image and the container image are AWS's own. And what stops a run is there first.

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
  source_folder               = "user_data"
  container_command           = ["train.py"]
  availability_zone_id        = "use1-az4"
  instance_type               = "g5.12xlarge"
  node_count                  = 1
  gpus_per_node               = 4
  on_demand_count             = 1
  root_volume_gib             = 200
  checkpoint_interval_seconds = 600
  global_batch                = 1024
  gpu_batch                   = 64
  max_runtime_seconds         = 36000
}

run "nothing_named" {
  command = plan

  assert {
    condition = (
      aws_launch_template.node["g5.12xlarge"].image_id == "ami-0fedcba9876543210" &&
      local.run.image == "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training@sha256:89abcdef0123456789abcdef0123456789abcdef0123456789abcdef01234567"
    )
    error_message = "The deep learning AMI, and the deep learning container by digest."
  }
  assert {
    condition = (
      aws_security_group.nodes.vpc_id == "vpc-0123456789abcdef0" &&
      join(",", aws_autoscaling_group.nodes.vpc_zone_identifier) == "subnet-0000000000000000c" &&
      aws_launch_template.node["g5.12xlarge"].network_interfaces[0].associate_public_ip_address == "true"
    )
    error_message = "The default VPC, with a public address."
  }
  assert {
    condition     = aws_s3_object.source[0].key == "run-1/source/${sha256(aws_s3_object.source[0].content)}.json" && local.run.source.sha256 == sha256(aws_s3_object.source[0].content)
    error_message = "The source is one object, named by its hash, which the nodes know."
  }
  assert {
    condition     = contains(keys(jsondecode(aws_s3_object.source[0].content)), "agent/node.py")
    error_message = "The source holds the files of the folder."
  }
  assert {
    condition = anytrue([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement :
      join(",", statement.Resource) == "arn:aws:ecr:us-east-1:763104351884:repository/pytorch-training"
    ])
    error_message = "The nodes may pull that image."
  }
}

run "stops_that_do_not_need_the_nodes" {
  command = plan

  assert {
    condition     = jsonencode(jsondecode(aws_scheduler_schedule.stop["gpu"].target[0].input)) == jsonencode({ AutoScalingGroupName = "scav-run-1", DesiredCapacity = 0 })
    error_message = "The schedule empties the group."
  }
  assert {
    condition     = join(",", flatten(jsondecode(aws_iam_role_policy.stop.policy).Statement[*].Action)) == "autoscaling:SetDesiredCapacity,states:StartExecution"
    error_message = "Its role can do nothing else."
  }
  assert {
    condition     = jsonencode(values(jsondecode(aws_sfn_state_machine.silent.definition).States.EachGroup.Branches[0].States)[0].Parameters) == jsonencode({ AutoScalingGroupName = "scav-run-1", DesiredCapacity = 0 })
    error_message = "Silence empties the group."
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.silent.evaluation_periods * 300 == 1800 && contains(aws_autoscaling_group.nodes.enabled_metrics, "GroupInServiceInstances")
    error_message = "Half an hour of silence, of nodes that are in service."
  }
}

run "several_network_interfaces_need_private_subnets" {
  command = plan

  variables {
    efa_interfaces = 2
    network_cards  = 2
  }

  override_data {
    target = data.aws_ec2_instance_type.node["g5.12xlarge"]
    values = {
      default_vcpus           = 48
      efa_supported           = true
      efa_maximum_interfaces  = 2
      maximum_network_cards   = 2
      supported_architectures = ["x86_64"]
      gpus                    = [{ count = 4, manufacturer = "NVIDIA", memory_size = 24576, name = "A10G" }]
    }
  }

  expect_failures = [aws_launch_template.node["g5.12xlarge"]]
}

run "old_gpus_need_images_of_their_own" {
  command = plan

  variables {
    instance_type = "p3.8xlarge"
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "a_script_or_an_image" {
  command = plan

  variables {
    source_folder = null
  }

  expect_failures = [aws_autoscaling_group.nodes]
}

run "no_default_vpc" {
  command = plan

  override_data {
    target = data.aws_vpcs.default
    values = { ids = [] }
  }

  expect_failures = [aws_security_group.nodes]
}

run "a_vpc_without_its_subnets" {
  command = plan

  variables {
    vpc_id = "vpc-0123456789abcdef0"
  }

  expect_failures = [aws_security_group.nodes]
}
