# HCP Terraform gives {"plan": ..., "run": ...}; the rules are those of ../policy/plan.rego.
package hcp.scav

import rego.v1

deny contains message if {
	plan := object.get(input, "plan", {})
	some message in data.scav.plan.deny with input as plan
}
