# A policy set in the same repository as ../policy; HCP Terraform evaluates it on every run.
policy "scav-plan" {
  description       = "What a training run may consist of"
  query             = "data.hcp.scav.deny"
  enforcement_level = "mandatory"
}
