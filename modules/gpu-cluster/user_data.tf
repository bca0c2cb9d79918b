locals {
  # Everything that the node has to know. It reaches the node as data in a file, never as shell code.
  run = {
    run_id              = var.run_id
    region              = local.region
    group               = local.name
    node_count          = var.node_count
    gpus_per_node       = var.gpus_per_node
    efa                 = var.efa_interfaces > 0
    image               = var.container_image
    command             = var.container_command
    max_restarts        = var.max_restarts
    max_runtime_seconds = var.max_runtime_seconds
    bucket              = local.bucket_name
    log_group           = local.log_group_name

    environment = {
      SCAV_RUN_ID                      = var.run_id
      SCAV_GLOBAL_BATCH                = tostring(var.global_batch)
      SCAV_GPU_BATCH                   = tostring(var.gpu_batch)
      SCAV_ACCUMULATION                = tostring(var.accumulation_steps)
      SCAV_LR_SCALE                    = tostring(var.learning_rate_scale)
      SCAV_CHECKPOINT_DIR              = "/checkpoints"
      SCAV_CHECKPOINT_INTERVAL_SECONDS = tostring(var.checkpoint_interval_seconds)
    }
  }

  user_data = templatefile("${path.module}/user_data/start.sh.tftpl", {
    run_base64             = base64encode(jsonencode(local.run))
    node_agent_gzip_base64 = base64gzip(file("${path.module}/user_data/node.py"))
  })
}
