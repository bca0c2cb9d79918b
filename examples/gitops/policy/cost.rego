# On the output of `scav review DIR --format json`:
#   conftest test --policy policy --namespace scav.cost scav.cost.json
package scav.cost

import rego.v1

# Set these.
max_usd_p95 := 500

max_usd_worst := 1000

max_runtime_hours := 72

min_probability := 0.9

deny contains sprintf("p95 cost $%.2f exceeds $%d", [input.usd.p95, max_usd_p95]) if input.usd.p95 > max_usd_p95

deny contains sprintf("at worst it costs $%.2f, more than $%d", [input.usd.max, max_usd_worst]) if {
	input.usd.max > max_usd_worst
}

deny contains sprintf("it may run %.1f h, longer than %d h", [input.choice.max_runtime_hours, max_runtime_hours]) if {
	input.choice.max_runtime_hours > max_runtime_hours
}

deny contains sprintf("%s is kept with probability %.2f only", [name, limit.probability]) if {
	some name in {"deadline_hours", "budget_usd"}
	limit := input.constraints[name]
	limit.probability < min_probability
}

deny contains sprintf("guardrail %s is exceeded", [rail.name]) if {
	some rail in input.guardrails
	not rail.kept
}

# Without these the rules above would hold for anything.
deny contains "this is no cost review of scav" if not input.usd.p95

deny contains "unknown version of the cost review" if not input.schema_version == 1

warn contains "the prediction rests on no probe" if input.evidence.probe_count == 0

warn contains "the prediction is outside what was measured" if input.evidence.extrapolated
