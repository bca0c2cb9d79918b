"""Meeting a deadline with spot nodes: when to wait, when to run on spot, when to pay for on-demand.

`world`            what every policy lives in, and `act`, which runs one
`dynamic_program`  makes scav's policy, a `table` that is simulated, written and executed alike
`grid`             values between its points, for it and for `omniscient`
`baselines`        on-demand only, greedy, uniform progress; `omniscient` is the limit for all
"""
