output "cluster" {
  description = "The outputs of modules/gpu-cluster, by name."
  value       = module.gpu_cluster
}
