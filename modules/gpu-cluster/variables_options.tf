# What a platform team may have to set, and what a probe sets: everything here has a default.

variable "deep_learning_container" {
  description = "AWS Deep Learning Container to use where container_image is null, by repository and tag; its digest is looked up once and kept. The list: aws.github.io/deep-learning-containers."
  type        = string
  default     = "pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9-]+:[A-Za-z0-9_.-]+$", var.deep_learning_container))
    error_message = "deep_learning_container must be a repository and a tag, such as pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2."
  }
}

variable "capacity_reservation_id" {
  description = "On-Demand Capacity Reservation in which the nodes start. They are all on-demand then, without overrides or placement group. Null: none."
  type        = string
  default     = null

  validation {
    condition     = var.capacity_reservation_id == null || can(regex("^cr-[0-9a-f]{8,17}$", var.capacity_reservation_id))
    error_message = "capacity_reservation_id must look like cr-0123456789abcdef0, or be null."
  }
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of the nodes' role, where the account demands one."
  type        = string
  default     = null

  validation {
    condition     = var.permissions_boundary_arn == null || can(regex("^arn:[a-z-]+:iam::[0-9a-z]*:policy/", var.permissions_boundary_arn))
    error_message = "permissions_boundary_arn must be the ARN of an IAM policy, or null."
  }
}

variable "kms_key_arn" {
  description = "KMS key for volumes, checkpoints and logs. Its policy must allow Auto Scaling's service-linked role and CloudWatch Logs. Null: keys that AWS manages."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/", var.kms_key_arn))
    error_message = "kms_key_arn must be the ARN of a KMS key (not of an alias), or null."
  }
}

variable "checkpoint_kms_key_arn" {
  description = "KMS key of an existing checkpoint_bucket, if it is another than kms_key_arn. Null: none."
  type        = string
  default     = null

  validation {
    condition     = var.checkpoint_kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/", var.checkpoint_kms_key_arn))
    error_message = "checkpoint_kms_key_arn must be the ARN of a KMS key (not of an alias), or null."
  }
}

variable "policy_arns" {
  description = "Further IAM policies of the nodes' role, for what else the job needs: a key of its data, a secret."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.policy_arns) <= 8 && alltrue([for arn in var.policy_arns : can(regex("^arn:[a-z-]+:iam::[0-9a-z]*:policy/", arn))])
    error_message = "policy_arns must list at most 8 ARNs of IAM policies."
  }
}

variable "check_quotas" {
  description = "Whether a plan reads the account's vCPU quotas and warns where they are too small. False where servicequotas:GetServiceQuota is not allowed."
  type        = bool
  default     = true
  nullable    = false
}

variable "interruption_topic_arn" {
  description = "SNS topic that hears of spot interruption warnings (of the whole account and region: AWS does not say whose), of nodes that this run lost or could not get, and why the run failed. Its policy must allow events.amazonaws.com. Null: none."
  type        = string
  default     = null

  validation {
    condition     = var.interruption_topic_arn == null || can(regex("^arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]+$", var.interruption_topic_arn))
    error_message = "interruption_topic_arn must be the ARN of an SNS topic, or null."
  }
}

variable "https_egress_cidr_blocks" {
  description = "Where the nodes may open HTTPS connections (AWS APIs, container registry, data). S3 in this region is always allowed."
  type        = list(string)
  default     = ["0.0.0.0/0"]
  nullable    = false

  validation {
    condition     = alltrue([for block in var.https_egress_cidr_blocks : can(cidrhost(block, 0))])
    error_message = "https_egress_cidr_blocks must list CIDR blocks such as 10.0.0.0/8."
  }
}

variable "log_retention_days" {
  description = "Days for which CloudWatch Logs keeps the run's logs."
  type        = number
  default     = 365
  nullable    = false

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "log_retention_days must be one of the periods that CloudWatch Logs knows: 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653."
  }
}

variable "checkpoint_lifecycle" {
  description = "Whether the created bucket removes replaced checkpoint versions and unfinished uploads after a day."
  type        = bool
  default     = true
  nullable    = false
}

variable "checkpoint_expiry_days" {
  description = "Days after which the created bucket deletes checkpoints. Null: never."
  type        = number
  default     = null

  validation {
    condition     = var.checkpoint_expiry_days == null ? true : var.checkpoint_expiry_days >= 1 && floor(var.checkpoint_expiry_days) == var.checkpoint_expiry_days
    error_message = "checkpoint_expiry_days must be a whole number of at least 1, or null."
  }
}

variable "max_restarts" {
  description = "How often torchrun restarts its workers before the node's agent restarts torchrun itself."
  type        = number
  default     = 3
  nullable    = false

  validation {
    condition     = var.max_restarts >= 0 && floor(var.max_restarts) == var.max_restarts
    error_message = "max_restarts must be a whole number of at least 0."
  }
}

variable "max_wait_seconds" {
  description = "How long nodes wait for the others before the run is stopped: those that are there cost money and do nothing."
  type        = number
  default     = 3600
  nullable    = false

  validation {
    condition     = var.max_wait_seconds >= 60 && floor(var.max_wait_seconds) == var.max_wait_seconds
    error_message = "max_wait_seconds must be a whole number of at least 60."
  }
}

variable "max_capacity_wait_seconds" {
  description = "How long after the apply the run may wait for capacity, which costs nothing while no node is there. It does not use up max_runtime_seconds, which counts from when all nodes were there first."
  type        = number
  default     = 14400
  nullable    = false

  validation {
    condition     = var.max_capacity_wait_seconds >= 0 && floor(var.max_capacity_wait_seconds) == var.max_capacity_wait_seconds
    error_message = "max_capacity_wait_seconds must be a whole number of at least 0."
  }
}

variable "runtime_includes_waiting" {
  description = "Whether max_runtime_seconds counts from the first node's start, and so the waiting for the others too. For probes, whose highest cost is promised."
  type        = bool
  default     = false
  nullable    = false
}

variable "max_silence_seconds" {
  description = "How long the job may show no sign of life, which is a line of output or a new file on any node, before it is started again; the second time without a new checkpoint, the run is given up. Null: three checkpoint intervals, at least half an hour."
  type        = number
  default     = null

  validation {
    condition     = var.max_silence_seconds == null ? true : var.max_silence_seconds >= 60
    error_message = "max_silence_seconds must be at least 60, or null."
  }
}

variable "max_failures" {
  description = "After this many failures of the job or of a node's agent in a row, with all nodes there and no new checkpoint, the run is given up. So it is after this many unfit nodes."
  type        = number
  default     = 5
  nullable    = false

  validation {
    condition     = var.max_failures >= 1 && floor(var.max_failures) == var.max_failures
    error_message = "max_failures must be a whole number of at least 1."
  }
}

variable "replace_lost_nodes" {
  description = "Whether the group replaces a node that was interrupted or failed. A probe is run again instead."
  type        = bool
  default     = true
  nullable    = false
}

variable "heartbeat_seconds" {
  description = "How often each node writes what it is doing to heartbeats/ under the run's prefix."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.heartbeat_seconds >= 1
    error_message = "heartbeat_seconds must be at least 1."
  }
}

variable "bucket_force_destroy" {
  description = "Whether destroying the run also deletes its logs, and everything in the bucket that the module created. For probes, whose results are collected before."
  type        = bool
  default     = false
  nullable    = false
}
