# On the output of `terraform show -json run.tfplan`:
#   conftest test --policy policy --namespace scav.plan plan.json
# HCP Terraform evaluates it too: there the same plan is input.plan.
# `scav check` says whether the plan is what scav planned; this says what may be planned at all.
package scav.plan

import rego.v1

# Set these.
max_nodes := 16

allowed_families := {"g4dn", "g5", "g6", "g6e", "g7e", "p4d", "p4de", "p5", "p5e", "p5en"}

capacity_types := {"aws_instance", "aws_spot_instance_request", "aws_spot_fleet_request", "aws_ec2_fleet"}

group_address := "module.gpu_cluster.aws_autoscaling_group.nodes"

plan := object.get(input, "plan", input)

created contains change if {
	some change in plan.resource_changes
	some action in change.change.actions
	action in {"create", "update"}
}

groups contains change if {
	some change in created
	change.type == "aws_autoscaling_group"
}

deny contains sprintf("%s starts machines outside the training group", [change.address]) if {
	some change in created
	change.type in capacity_types
}

deny contains sprintf("%s is a second group of machines", [change.address]) if {
	some change in groups
	change.address != group_address
}

deny contains sprintf("%s may have %d nodes, more than %d", [change.address, change.change.after.max_size, max_nodes]) if {
	some change in groups
	change.change.after.max_size > max_nodes
}

deny contains sprintf("%s is of family %s, which is not allowed", [kind, family]) if {
	some change in groups
	some override in change.change.after.mixed_instances_policy[0].launch_template[0].override
	kind := override.instance_type
	family := split(kind, ".")[0]
	not family in allowed_families
}

deny contains sprintf("%s allows IMDSv1", [change.address]) if {
	some change in created
	change.type == "aws_launch_template"
	change.change.after.metadata_options[0].http_tokens != "required"
}

deny contains sprintf("%s has an unencrypted volume", [change.address]) if {
	some change in created
	change.type == "aws_launch_template"
	some mapping in change.change.after.block_device_mappings
	mapping.ebs[0].encrypted != "true"
}

deny contains sprintf("%s is open to the internet", [change.address]) if {
	some change in created
	change.type == "aws_vpc_security_group_ingress_rule"
	change.change.after.cidr_ipv4 == "0.0.0.0/0"
}

deny contains sprintf("%s grants everything", [change.address]) if {
	some change in created
	change.type == "aws_iam_role_policy_attachment"
	endswith(change.change.after.policy_arn, "/AdministratorAccess")
}

deny contains sprintf("%s would delete checkpoints", [change.address]) if {
	some change in plan.resource_changes
	change.type == "aws_s3_bucket"
	"delete" in change.change.actions
}

# Without these the rules above would hold for anything.
deny contains "this is no Terraform plan" if not plan.resource_changes

deny contains "this Terraform plan failed" if plan.errored
