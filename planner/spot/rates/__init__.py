"""Losing spot nodes: when it happens, when capacity is back, and what that costs a run.

`process`      rates by age of one gang; `history`, `interruption_classes`, `pooled` say where they come from
`checkpoints`  how often to save; `slowdown` what spot costs each candidate, in closed form
"""
