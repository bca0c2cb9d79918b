"""Runs on spot nodes, simulated by the thousand or replayed on recordings.

`work`         a job as losses see it; `monte_carlo` runs it on a process, `replay` on a recording
`markets`      capacity step by step, for deadline policies
"""
