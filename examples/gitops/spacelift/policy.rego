# Plan policy of a Spacelift stack: the cost review arrives as custom input, see .spacelift/config.yml.
package spacelift

import rego.v1

max_usd := 500

cost := input.third_party_metadata.custom.scav

deny contains "no cost review: scav did not run" if not cost.usd

deny contains sprintf("p95 cost $%.2f exceeds $%d", [cost.usd.p95, max_usd]) if cost.usd.p95 > max_usd

warn contains "the prediction rests on no probe" if cost.evidence.probe_count == 0

# Machines beside the group that scav planned.
deny contains sprintf("%s is not part of the plan", [change.address]) if {
	some change in input.terraform.resource_changes
	change.type in {"aws_instance", "aws_spot_instance_request", "aws_spot_fleet_request", "aws_ec2_fleet"}
	"create" in change.change.actions
}
