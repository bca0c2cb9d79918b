"""Losing spot nodes: when it happens, when capacity is back, and what that costs a run.

`process`      rates by age of one gang; `history`, `advisor`, `pooled` say where they come from
`gang`         the count of available nodes, with the losses that come together
`checkpoints`  how often to save; `slowdown` what spot costs each candidate, in closed form
"""
