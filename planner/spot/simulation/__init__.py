"""A plan lived through by the thousand: hours, dollars, losses and missed deadlines of each run.

`case`      a cluster and its job as interruptions see them, and the policy table that goes with it
`case_runs` simulates a case, with its policy or without
`capacity`  where markets come from: the model, or a recording
`policies`  scav's way beside the others, on the same markets
"""
