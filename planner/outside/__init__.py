"""Everything that touches the world: disk, AWS, Terraform, processes, and the workspace as text.

Its modules are its exports: `from planner.outside import store`. Each is loaded when it is needed, so that a command
that only reads files does not wait for the others.
"""

__all__ = [
    "assets",
    "aws",
    "doctor",
    "in_use",
    "input_files",
    "inspection",
    "logs",
    "price_check",
    "render",
    "run_reader",
    "runners",
    "source",
    "spot_records",
    "store",
    "terraform",
    "what_ran",
    "workspace_files",
]
