# Facts about pinned inputs, read to guard against mistakes and to size the interfaces of the overrides.
# Nothing here selects an image or a type.
data "aws_ami" "node" {
  # AWS deprecates its images after some months: the run must still be planned, and destroyed.
  include_deprecated = true

  filter {
    name   = "image-id"
    values = [local.ami_id]
  }
}

data "aws_ec2_instance_type" "node" {
  for_each = toset(local.instance_types)

  instance_type = each.value
}

locals {
  # An override may have fewer cards than the chosen type: the same four GPUs come with 1 EFA in g6e.12xlarge, 2 in g6e.24xlarge.
  efa_interfaces = {
    for type, facts in data.aws_ec2_instance_type.node : type =>
    type == var.instance_type ? var.efa_interfaces : min(var.efa_interfaces, coalesce(facts.efa_maximum_interfaces, 0))
  }
  network_cards = {
    for type, facts in data.aws_ec2_instance_type.node : type =>
    type == var.instance_type ? var.network_cards : facts.maximum_network_cards
  }

  # The primary interface is EFA with IP where every card has EFA, else plain IP on a card of its own.
  primary_interface_type = {
    for type, count in local.efa_interfaces : type =>
    count == 0 ? null : (count >= local.network_cards[type] ? "efa" : "interface")
  }
  # The rest is EFA only: no IP addresses are used up, and the kernel has one route. (range(1, 0) would count down.)
  network_interfaces = {
    for type, primary in local.primary_interface_type : type => concat(
      [{ card = 0, device = 0, type = primary }],
      [
        for card in range(1, max(1, local.efa_interfaces[type] + (primary == "interface" ? 1 : 0))) :
        { card = card, device = 1, type = "efa-only" }
      ],
    )
  }
}

resource "aws_launch_template" "node" {
  for_each = toset(local.instance_types)

  name                                 = "${local.name}-${replace(each.value, ".", "-")}"
  description                          = "Node of training run ${var.run_id}"
  image_id                             = local.ami_id
  instance_type                        = each.value
  instance_initiated_shutdown_behavior = "terminate"
  update_default_version               = true
  ebs_optimized                        = true
  user_data                            = local.user_data.gpu
  tags                                 = local.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.node.arn
  }

  # Containers use the host's network, so that one hop is enough.
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
      throughput            = var.root_volume_mibps
      encrypted             = true
      kms_key_id            = var.kms_key_arn
      delete_on_termination = true
    }
  }

  # Encrypted as the snapshot is, or as the account says: EC2 takes no other word with a snapshot.
  dynamic "block_device_mappings" {
    for_each = local.snapshot_devices

    content {
      device_name = block_device_mappings.value.device

      ebs {
        volume_type           = "gp3"
        snapshot_id           = block_device_mappings.value.snapshot_id
        delete_on_termination = true
      }
    }
  }

  dynamic "network_interfaces" {
    for_each = local.network_interfaces[each.value]

    content {
      description           = "${local.name} card ${network_interfaces.value.card}"
      network_card_index    = network_interfaces.value.card
      device_index          = network_interfaces.value.device
      interface_type        = network_interfaces.value.type
      security_groups       = concat([aws_security_group.nodes.id], var.security_group_ids)
      delete_on_termination = true
      # EC2 refuses the argument with more than one interface, and then never assigns a public address.
      associate_public_ip_address = length(local.network_interfaces[each.value]) == 1 ? local.use_default_vpc : null
    }
  }

  dynamic "capacity_reservation_specification" {
    for_each = var.capacity_reservation_id == null ? [] : [var.capacity_reservation_id]

    content {
      capacity_reservation_target {
        capacity_reservation_id = capacity_reservation_specification.value
      }
    }
  }

  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume", "network-interface"])

    content {
      resource_type = tag_specifications.value
      tags          = merge(local.tags, { Name = local.name })
    }
  }

  lifecycle {
    precondition {
      condition     = !local.use_default_vpc || length(local.network_interfaces[each.value]) == 1
      error_message = "${each.value} gets several network interfaces, to which EC2 gives no public address, so that it would reach nothing in the default VPC: set network.vpc and network.subnets in scav.yaml (private subnets with a NAT gateway or endpoints), or vpc_id and subnet_ids."
    }
    precondition {
      condition     = contains(data.aws_ec2_instance_type.node[each.value].supported_architectures, data.aws_ami.node.architecture)
      error_message = "${local.ami_id} is built for ${data.aws_ami.node.architecture}, which ${each.value} does not run."
    }
    precondition {
      condition     = sum(concat([0], [for gpu in data.aws_ec2_instance_type.node[each.value].gpus : gpu.count])) == var.gpus_per_node
      error_message = "${each.value} does not have gpus_per_node = ${var.gpus_per_node} GPUs."
    }
    precondition {
      condition     = join(",", data.aws_ec2_instance_type.node[each.value].gpus[*].name) == join(",", data.aws_ec2_instance_type.node[var.instance_type].gpus[*].name)
      error_message = "${each.value} has another GPU than ${var.instance_type}: the slower one would hold back every step."
    }
    precondition {
      condition     = var.efa_interfaces == 0 || data.aws_ec2_instance_type.node[each.value].efa_supported
      error_message = "${each.value} has no EFA, but efa_interfaces = ${var.efa_interfaces}: remove it from instance_type_overrides, or set efa_interfaces = 0."
    }
    precondition {
      condition     = local.efa_interfaces[each.value] <= coalesce(data.aws_ec2_instance_type.node[each.value].efa_maximum_interfaces, 0)
      error_message = "${each.value} has at most ${coalesce(data.aws_ec2_instance_type.node[each.value].efa_maximum_interfaces, 0)} EFA interfaces, but efa_interfaces = ${var.efa_interfaces}."
    }
    precondition {
      condition     = local.user_data_bytes.gpu <= 16384
      error_message = "The user data has ${local.user_data_bytes.gpu} bytes; EC2 allows 16384. Shorten container_command."
    }
  }
}
