# A policy set of HCP Terraform: a folder with this file and ../policy/plan.rego.
policy "scav-plan" {
  description       = "What a training run may consist of"
  query             = "data.scav.plan.deny"
  enforcement_level = "mandatory"
}
