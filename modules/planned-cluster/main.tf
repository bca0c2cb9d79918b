# A gpu-cluster from a whole plan: Terraform hands a module its variables one by one, and this does so.

module "gpu_cluster" {
  source = "../gpu-cluster"

  run_id                      = var.variables.run_id
  availability_zone_id        = var.variables.availability_zone_id
  instance_type               = var.variables.instance_type
  instance_type_overrides     = var.variables.instance_type_overrides
  node_count                  = var.variables.node_count
  gpus_per_node               = var.variables.gpus_per_node
  on_demand_count             = var.variables.on_demand_count
  efa_interfaces              = var.variables.efa_interfaces
  network_cards               = var.variables.network_cards
  placement_group             = var.variables.placement_group
  root_volume_gib             = var.variables.root_volume_gib
  root_volume_mibps           = var.variables.root_volume_mibps
  checkpoint_bucket           = var.variables.checkpoint_bucket
  checkpoint_tier             = var.variables.checkpoint_tier
  checkpoint_interval_seconds = var.variables.checkpoint_interval_seconds
  global_batch                = var.variables.global_batch
  gpu_batch                   = var.variables.gpu_batch
  accumulation_steps          = var.variables.accumulation_steps
  learning_rate_scale         = var.variables.learning_rate_scale
  max_runtime_seconds         = var.variables.max_runtime_seconds
  budget_usd                  = var.variables.budget_usd
  budget_emails               = var.variables.budget_emails
  container_command           = var.variables.container_command
  strategy                    = var.variables.strategy
  vpc_id                      = var.variables.vpc_id
  subnet_ids                  = var.variables.subnet_ids
  security_group_ids          = var.variables.security_group_ids
  ami_id                      = var.variables.ami_id
  container_image             = var.variables.container_image
  source_folder               = var.variables.source_folder
  data                        = var.variables.data

  tags                     = var.options.tags
  kms_key_arn              = var.options.kms_key_arn
  checkpoint_kms_key_arn   = var.options.checkpoint_kms_key_arn
  permissions_boundary_arn = var.options.permissions_boundary_arn
  policy_arns              = var.options.policy_arns
  capacity_reservation_id  = var.options.capacity_reservation_id
  check_quotas             = var.options.check_quotas
  interruption_topic_arn   = var.options.interruption_topic_arn
  https_egress_cidr_blocks = var.options.https_egress_cidr_blocks
  log_retention_days       = var.options.log_retention_days
  checkpoint_lifecycle     = var.options.checkpoint_lifecycle
  checkpoint_expiry_days   = var.options.checkpoint_expiry_days
}
