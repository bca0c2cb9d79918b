# Everything that a node has to know. It reaches the node as data in a file, never as shell code.
locals {
  memory_run = {
    run_id                   = var.run_id
    region                   = local.region
    group                    = local.name
    memory_group             = var.checkpoint_tier == null ? null : local.memory_name
    max_runtime_seconds      = var.max_runtime_seconds
    max_wait_seconds         = var.max_capacity_wait_seconds + var.max_wait_seconds
    topic                    = var.interruption_topic_arn
    runtime_includes_waiting = var.runtime_includes_waiting
    data_seconds             = local.data_seconds
    bucket                   = local.bucket_name
    log_group                = local.log_group_name
  }

  # Memory nodes are not told about the training, so that a change of it does not change them.
  run = merge(local.memory_run, {
    node_count          = var.node_count
    gpus_per_node       = var.gpus_per_node
    efa                 = var.efa_interfaces > 0
    image               = local.container_image
    command             = var.container_command
    max_restarts        = var.max_restarts
    max_failures        = var.max_failures
    max_wait_seconds    = var.max_wait_seconds
    heartbeat_seconds   = var.heartbeat_seconds
    source              = local.source
    root_volume_gib     = var.root_volume_gib
    data                = local.node_data
    max_silence_seconds = coalesce(var.max_silence_seconds, max(1800, 3 * var.checkpoint_interval_seconds))

    environment = merge({
      SCAV_RUN_ID                      = var.run_id
      SCAV_GLOBAL_BATCH                = tostring(var.global_batch)
      SCAV_GPU_BATCH                   = tostring(var.gpu_batch)
      SCAV_ACCUMULATION                = tostring(var.accumulation_steps)
      SCAV_LR_SCALE                    = tostring(var.learning_rate_scale)
      SCAV_CHECKPOINT_DIR              = "/checkpoints"
      SCAV_CHECKPOINT_INTERVAL_SECONDS = tostring(var.checkpoint_interval_seconds)
      SCAV_RESULTS_DIR                 = "/results"
      },
      length(var.data) == 0 ? {} : { SCAV_DATA_DIR = "/data" },
      var.strategy == null ? {} : { SCAV_STRATEGY = jsonencode(var.strategy) },
    )
  })
}

locals {
  agent_folder = "${path.module}/user_data/agent"
  # They are for who reads this module, and a sixth of the agent: nodes get it without.
  docstrings_and_comments = "/(?m)^ *(\\x22{3}[^\\x22]*\\x22{3}|#.*)\\n/"

  roles = {
    gpu    = { services = "deadline watch train", run = jsonencode(local.run) }
    memory = { services = "deadline memory", run = jsonencode(local.memory_run) }
  }

  # A node gets what it needs: user data is small.
  agent_files = {
    for name in keys(local.roles) : name => [
      for file in fileset(local.agent_folder, "*.py") : file
      if(file != "memory_node.py" || name == "memory") && (file != "data.py" || (name == "gpu" && length(var.data) > 0))
    ]
  }

  start_scripts = {
    for name, role in local.roles : name => templatefile("${path.module}/user_data/start.sh.tftpl", {
      run_base64 = base64gzip(role.run)
      agent = {
        for file in fileset(local.agent_folder, "*.py") :
        file => replace(file("${local.agent_folder}/${file}"), local.docstrings_and_comments, "")
        if contains(local.agent_files[name], file)
      }
      services              = role.services
      first_contact_minutes = "10"
    })
  }

  # Compressed, which cloud-init undoes: EC2 allows 16 KiB. To read it: base64 --decode | gzip --decompress
  user_data       = { for role, script in local.start_scripts : role => base64gzip(script) }
  user_data_bytes = { for role, text in local.user_data : role => floor(length(text) * 3 / 4) }
}
