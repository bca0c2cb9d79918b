# The run

variable "run_id" {
  description = "Name of this run; part of every resource name. A finished run stays finished: a new run needs a new run_id."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{0,46}$", var.run_id))
    error_message = "run_id must be 1 to 47 lower-case letters, digits or hyphens, and must not begin with a hyphen."
  }
}

variable "container_image" {
  description = "Container image of the training job, by digest (registry/name@sha256:...), so that every node runs the same bytes. Null: AWS's deep_learning_container, whose digest is looked up once and kept."
  type        = string
  default     = null

  validation {
    condition     = var.container_image == null || can(regex("^[a-z0-9][A-Za-z0-9._:/-]{0,400}@sha256:[0-9a-f]{64}$", var.container_image))
    error_message = "container_image must name an image by digest, for example registry.example.com/team/train@sha256:<64 hexadecimal digits>; a tag can change between two nodes."
  }
}

variable "source_folder" {
  description = "Folder of the root module with the job's own files, which nodes find in /workspace, the container's working directory; what its requirements.txt names is installed first. Null: the image has everything."
  type        = string
  default     = null

  validation {
    condition     = var.source_folder == null || can(regex("^[A-Za-z0-9_-]{1,64}$", var.source_folder))
    error_message = "source_folder must be the name of a folder beside main.tf, or null."
  }
}

variable "container_command" {
  description = "What torchrun runs in the container, for example [\"train.py\", \"--epochs\", \"90\"]. Empty: the image's own entry point runs and finds torchrun's settings in PET_* variables."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(jsonencode(var.container_command)) <= 3000
    error_message = "container_command must be at most 3000 characters: user data is limited to 16 KiB. Put long arguments into a file in the image."
  }

  validation {
    condition     = alltrue([for argument in var.container_command : !strcontains(argument, "\u0000")])
    error_message = "container_command must not contain NUL characters: no program can be given one."
  }
}

variable "max_runtime_seconds" {
  description = "The stop: this long after all nodes were there for the first time, the group is scaled to 0, finished or not."
  type        = number
  nullable    = false

  validation {
    condition     = var.max_runtime_seconds >= 60 && floor(var.max_runtime_seconds) == var.max_runtime_seconds
    error_message = "max_runtime_seconds must be a whole number of at least 60."
  }
}

variable "tags" {
  description = "Tags for every resource, instance and volume. The module adds Name, managed-by and scav-run."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = length(var.tags) <= 40 && alltrue([
      for key, value in var.tags :
      can(regex("^[\\p{L}\\p{Z}\\p{N}_.:/=+@-]{1,128}$", key)) &&
      can(regex("^[\\p{L}\\p{Z}\\p{N}_.:/=+@-]{0,256}$", value)) &&
      !startswith(lower(key), "aws:")
    ])
    error_message = "tags must be at most 40 pairs of letters, digits, spaces and _ . : / = + - @; keys of 1 to 128 characters that do not begin with aws:, values of at most 256."
  }

  validation {
    condition     = length(setintersection(keys(var.tags), ["Name", "managed-by", "scav-run"])) == 0
    error_message = "tags must not set Name, managed-by or scav-run: the module sets them."
  }
}

# Where

variable "vpc_id" {
  description = "VPC of the subnets; the module never creates one. Null, with subnet_ids empty: the default VPC, with public addresses, which takes instance types with one network interface."
  type        = string
  default     = null

  validation {
    condition     = var.vpc_id == null || can(regex("^vpc-[0-9a-f]{8,17}$", var.vpc_id))
    error_message = "vpc_id must look like vpc-0123456789abcdef0."
  }
}

variable "subnet_ids" {
  description = "Private subnets with a route to S3, the container registry and the AWS APIs. Those in availability_zone_id are used."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for id in var.subnet_ids : can(regex("^subnet-[0-9a-f]{8,17}$", id))])
    error_message = "subnet_ids must list subnets, each like subnet-0123456789abcdef0."
  }
}

variable "availability_zone_id" {
  description = "Zone of the plan by its ID (use1-az4), which is the same place in every account; zone names (us-east-1a) are not. Empty: any zone of subnet_ids."
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = can(regex("^([a-z]{2,5}[0-9]+(-[a-z]+[0-9]+)?-az[0-9]+)?$", var.availability_zone_id))
    error_message = "availability_zone_id must be a zone ID such as use1-az4 (not a zone name such as us-east-1a), or empty."
  }
}

variable "security_group_ids" {
  description = "Further security groups of the nodes, for what lets in only their members, such as a file system."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.security_group_ids) <= 4 && alltrue([for id in var.security_group_ids : can(regex("^sg-[0-9a-f]{8,17}$", id))])
    error_message = "security_group_ids must list at most 4 security groups, each like sg-0123456789abcdef0."
  }
}

# The nodes

variable "ami_id" {
  description = "Machine image of the nodes, with the NVIDIA driver, Docker with the NVIDIA runtime, the AWS CLI and python3 (an AWS Deep Learning Base AMI has them). Null: AWS's newest of these, looked up once and kept."
  type        = string
  default     = null

  validation {
    condition     = var.ami_id == null || can(regex("^ami-[0-9a-f]{8,17}$", var.ami_id))
    error_message = "ami_id must look like ami-0123456789abcdef0."
  }
}

variable "instance_type" {
  description = "Instance type of the plan."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*\\.[a-z0-9-]+$", var.instance_type))
    error_message = "instance_type must look like g5.12xlarge."
  }
}

variable "instance_type_overrides" {
  description = "Further instance types with the same GPU and the same number of them, in order of preference, without instance_type."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition = (
      alltrue([for type in var.instance_type_overrides : can(regex("^[a-z][a-z0-9-]*\\.[a-z0-9-]+$", type))]) &&
      length(distinct(var.instance_type_overrides)) == length(var.instance_type_overrides) &&
      length(var.instance_type_overrides) <= 19
    )
    error_message = "instance_type_overrides must be at most 19 different instance types, each like g5.12xlarge."
  }
}

variable "node_count" {
  description = "Number of nodes. The job starts when all of them are there."
  type        = number
  nullable    = false

  validation {
    condition     = var.node_count >= 1 && var.node_count <= 1000 && floor(var.node_count) == var.node_count
    error_message = "node_count must be a whole number from 1 to 1000."
  }
}

variable "gpus_per_node" {
  description = "GPUs in each node, which is the number of training processes per node."
  type        = number
  nullable    = false

  validation {
    condition     = var.gpus_per_node >= 1 && var.gpus_per_node <= 64 && floor(var.gpus_per_node) == var.gpus_per_node
    error_message = "gpus_per_node must be a whole number from 1 to 64."
  }
}

variable "on_demand_count" {
  description = "How many of the nodes are on-demand; the rest is spot."
  type        = number
  nullable    = false

  validation {
    condition     = var.on_demand_count >= 0 && floor(var.on_demand_count) == var.on_demand_count
    error_message = "on_demand_count must be a whole number from 0 to node_count."
  }
}

variable "policy_file" {
  description = "File of the root module with the deadline policy (scav.policy.json), by which the nodes decide when on-demand nodes take over from spot nodes. Null: they never do."
  type        = string
  default     = null

  validation {
    condition     = var.policy_file == null || can(regex("^[A-Za-z0-9_.-]{1,64}$", var.policy_file))
    error_message = "policy_file must be the name of a file beside main.tf, or null."
  }
}

variable "efa_interfaces" {
  description = "EFA interfaces per node of instance_type; 0 for plain networking."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.efa_interfaces >= 0 && var.efa_interfaces <= 64 && floor(var.efa_interfaces) == var.efa_interfaces
    error_message = "efa_interfaces must be a whole number from 0 to 64."
  }
}

variable "network_cards" {
  description = "Network cards of instance_type. With fewer EFA interfaces than cards, card 0 carries IP traffic only."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.network_cards >= 1 && var.network_cards <= 64 && floor(var.network_cards) == var.network_cards
    error_message = "network_cards must be a whole number from 1 to 64."
  }
}

variable "placement_group" {
  description = "Whether the nodes share a cluster placement group (short network paths, one zone, harder to get)."
  type        = bool
  default     = false
  nullable    = false
}

variable "root_volume_gib" {
  description = "Size of the encrypted gp3 root volume of each node: system, container image and local checkpoints."
  type        = number
  nullable    = false

  validation {
    condition     = var.root_volume_gib >= 8 && var.root_volume_gib <= 16384 && floor(var.root_volume_gib) == var.root_volume_gib
    error_message = "root_volume_gib must be a whole number from 8 to 16384."
  }
}

variable "root_volume_mibps" {
  description = "MiB/s of that volume; 125 come with it, and more is paid for."
  type        = number
  default     = 125
  nullable    = false

  validation {
    condition     = var.root_volume_mibps >= 125 && var.root_volume_mibps <= 750 && floor(var.root_volume_mibps) == var.root_volume_mibps
    error_message = "root_volume_mibps must be a whole number from 125 to 750, which is what the volume's 3000 IOPS allow."
  }
}

# The job's settings, which reach the container as SCAV_* variables

variable "global_batch" {
  description = "Samples per optimizer step over all GPUs (SCAV_GLOBAL_BATCH)."
  type        = number
  nullable    = false

  validation {
    condition     = var.global_batch >= 1 && floor(var.global_batch) == var.global_batch
    error_message = "global_batch must be a whole number of at least 1."
  }
}

variable "gpu_batch" {
  description = "Samples per forward pass on one GPU (SCAV_GPU_BATCH)."
  type        = number
  nullable    = false

  validation {
    condition     = var.gpu_batch >= 1 && floor(var.gpu_batch) == var.gpu_batch
    error_message = "gpu_batch must be a whole number of at least 1."
  }
}

variable "accumulation_steps" {
  description = "Forward passes per optimizer step (SCAV_ACCUMULATION)."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.accumulation_steps >= 1 && floor(var.accumulation_steps) == var.accumulation_steps
    error_message = "accumulation_steps must be a whole number of at least 1."
  }
}

variable "learning_rate_scale" {
  description = "Factor on the learning rate of the reference batch (SCAV_LR_SCALE)."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.learning_rate_scale > 0
    error_message = "learning_rate_scale must be greater than 0."
  }
}

variable "strategy" {
  description = "How the script is to spread its model over the GPUs (SCAV_STRATEGY, as JSON). Null: as it likes."
  type = object({
    sharding        = string
    tensor_parallel = number
    pipeline        = number
    recompute       = string
  })
  default = null

  validation {
    condition = var.strategy == null || (
      contains(["ddp", "zero1", "zero2", "fsdp", "hsdp"], try(var.strategy.sharding, "")) &&
      contains(["none", "selective", "full"], try(var.strategy.recompute, "")) &&
      try(var.strategy.tensor_parallel >= 1 && floor(var.strategy.tensor_parallel) == var.strategy.tensor_parallel, false) &&
      try(var.strategy.pipeline >= 1 && floor(var.strategy.pipeline) == var.strategy.pipeline, false)
    )
    error_message = "strategy must be a sharding (ddp, zero1, zero2, fsdp, hsdp), whole numbers of at least 1 for tensor_parallel and pipeline, and recompute (none, selective, full), or null."
  }
}

# What the job reads

variable "data" {
  description = "What the job reads, in folders of SCAV_DATA_DIR: s3://bucket/folder/ is copied to every node (gib: how much that is), fs-ID/MOUNTNAME (FSx for Lustre) mounted, snap-ID a volume of every node. The role may read that and nothing beside it."
  type = list(object({
    name = string
    uri  = string
    gib  = number
  }))
  default  = []
  nullable = false

  validation {
    condition = length(var.data) <= 10 && length(distinct(var.data[*].name)) == length(var.data) && alltrue([
      for source in var.data :
      can(regex("^[a-z0-9][a-z0-9_-]{0,31}$", source.name)) && source.gib >= 0 && floor(source.gib) == source.gib &&
      can(regex("^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_.=+@:,/-]{0,400})?|fs-[0-9a-f]{8,17}/[A-Za-z0-9_-]{1,8}|snap-[0-9a-f]{8,17})$", source.uri))
    ])
    error_message = "data must be at most 10 sources of different names, each s3://bucket/folder/ with its whole gib, fs-ID/MOUNTNAME or snap-ID."
  }
}

# Checkpoints

variable "checkpoint_bucket" {
  description = "Existing S3 bucket for checkpoints, in this region. Null: the module creates one and protects it."
  type        = string
  default     = null

  validation {
    condition     = var.checkpoint_bucket == null || can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.checkpoint_bucket))
    error_message = "checkpoint_bucket must be the name of an S3 bucket (3 to 63 lower-case letters, digits, dots, hyphens), or null."
  }
}

variable "checkpoint_tier" {
  description = "On-demand nodes without GPUs that take checkpoints into half of their memory and copy them to S3 behind, for checkpoints too large to reach S3 within a spot notice. Null: none."
  type = object({
    instance_type = string
    node_count    = number
  })
  default = null

  validation {
    condition = var.checkpoint_tier == null ? true : (
      can(regex("^[a-z][a-z0-9-]*\\.[a-z0-9-]+$", var.checkpoint_tier.instance_type)) &&
      var.checkpoint_tier.node_count >= 1 && var.checkpoint_tier.node_count <= 100 &&
      floor(var.checkpoint_tier.node_count) == var.checkpoint_tier.node_count
    )
    error_message = "checkpoint_tier must be an instance type such as r6i.4xlarge and a whole node_count from 1 to 100, or null."
  }
}

variable "checkpoint_interval_seconds" {
  description = "How often the job should write a checkpoint (SCAV_CHECKPOINT_INTERVAL_SECONDS)."
  type        = number
  nullable    = false

  validation {
    condition     = var.checkpoint_interval_seconds >= 1
    error_message = "checkpoint_interval_seconds must be at least 1."
  }
}

# Money

variable "budget_usd" {
  description = "Cost of the run in USD at which AWS Budgets alerts. An alert, hours late; max_runtime_seconds is the stop. Null: no budget."
  type        = number
  default     = null

  validation {
    condition     = var.budget_usd == null ? true : var.budget_usd >= 0.01
    error_message = "budget_usd must be at least 0.01, or null."
  }
}

variable "budget_emails" {
  description = "Who receives the budget's alerts. Empty: the budget is visible in the console and tells nobody."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.budget_emails) <= 10 && alltrue([for email in var.budget_emails : can(regex("^[^@\\s]+@[^@\\s]+\\.[^@\\s]+$", email))])
    error_message = "budget_emails must be at most 10 e-mail addresses."
  }
}
