# What nobody named: the machine image and the container image, looked up once and kept in the state. What was reviewed
# and started is what a replaced node gets, whatever AWS releases meanwhile; a new run_id looks again.

locals {
  # Volta and older GPUs have neither the open kernel driver of these machine images nor kernels in these containers.
  too_old_for_defaults = can(regex("^(p2|p3|p3dn|g3|g3s)\\.", var.instance_type))
  architecture         = data.aws_ec2_instance_type.node[var.instance_type].supported_architectures[0]

  ami_parameter = "/aws/service/deeplearning/ami/${local.architecture}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
  repository    = split(":", var.deep_learning_container)[0]

  found = merge(
    { for index, parameter in data.aws_ssm_parameter.ami : "ami_id" => parameter.insecure_value },
    {
      for index, image in data.aws_ecr_image.default :
      "container_image" => "${split(":", data.aws_sagemaker_prebuilt_ecr_image.default[0].registry_path)[0]}@${image.image_digest}"
    },
  )

  ami_id          = var.ami_id != null ? var.ami_id : terraform_data.found["ami_id"].input
  container_image = var.container_image != null ? var.container_image : terraform_data.found["container_image"].input
}

data "aws_ssm_parameter" "ami" {
  count = var.ami_id == null ? 1 : 0

  name = local.ami_parameter
}

# Whose registry AWS's containers are in, by region: a table in the provider.
data "aws_sagemaker_prebuilt_ecr_image" "default" {
  count = var.container_image == null ? 1 : 0

  repository_name = local.repository
}

data "aws_ecr_image" "default" {
  count = var.container_image == null ? 1 : 0

  registry_id     = data.aws_sagemaker_prebuilt_ecr_image.default[0].registry_id
  repository_name = local.repository
  image_tag       = split(":", var.deep_learning_container)[1]
}

resource "terraform_data" "found" {
  for_each = local.found

  input            = each.value
  triggers_replace = var.run_id

  lifecycle {
    ignore_changes = [input]
  }
}
