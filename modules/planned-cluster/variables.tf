variable "variables" {
  description = "What was decided: the attribute `variables` of a scav_plan. Null in it: the default of modules/gpu-cluster holds, where each is described and checked."
  type = object({
    region                      = string
    run_id                      = string
    availability_zone_id        = string
    instance_type               = string
    instance_type_overrides     = list(string)
    node_count                  = number
    gpus_per_node               = number
    on_demand_count             = number
    efa_interfaces              = number
    network_cards               = number
    placement_group             = bool
    root_volume_gib             = number
    root_volume_mibps           = number
    checkpoint_bucket           = string
    checkpoint_tier             = object({ instance_type = string, node_count = number })
    checkpoint_interval_seconds = number
    global_batch                = number
    gpu_batch                   = number
    accumulation_steps          = number
    learning_rate_scale         = number
    max_runtime_seconds         = number
    budget_usd                  = number
    budget_emails               = list(string)
    container_command           = list(string)
    strategy                    = object({ sharding = string, tensor_parallel = number, pipeline = number, recompute = string })
    vpc_id                      = string
    subnet_ids                  = list(string)
    security_group_ids          = list(string)
    ami_id                      = string
    container_image             = string
    source_folder               = string
    data                        = list(object({ name = string, uri = string, gib = number }))
  })
  nullable = false
}

variable "options" {
  description = "What a platform team demands, of the other variables of modules/gpu-cluster. Null in it: their defaults."
  type = object({
    tags                     = optional(map(string))
    kms_key_arn              = optional(string)
    checkpoint_kms_key_arn   = optional(string)
    permissions_boundary_arn = optional(string)
    policy_arns              = optional(list(string))
    capacity_reservation_id  = optional(string)
    check_quotas             = optional(bool)
    interruption_topic_arn   = optional(string)
    https_egress_cidr_blocks = optional(list(string))
    log_retention_days       = optional(number)
    checkpoint_lifecycle     = optional(bool)
    checkpoint_expiry_days   = optional(number)
  })
  default  = {}
  nullable = false
}
