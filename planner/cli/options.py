"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

job_argument = click.argument("job", type=click.Path(path_type=Path), default=".", required=False)
workspace_argument = click.argument("workspace", metavar="DIR", type=click.Path(path_type=Path))
catalog_option = click.option(
    "--catalog",
    "catalog_file",
    type=click.Path(path_type=Path),
    help="Snapshot to take prices from. [default: the newest catalog-DATE.json beside the job, else the embedded one]",
)
history_option = click.option(
    "--history",
    type=click.Path(path_type=Path),
    envvar="SCAV_HISTORY",
    help="Folder with the measurements.jsonl of other jobs, which say how instance types behave on more nodes.",
)
spot_history_option = click.option(
    "--spot-history",
    type=click.Path(path_type=Path),
    envvar="SCAV_SPOT_HISTORY",
    help="Folder with recordings of spot capacity, named g5.xlarge@use1-az4.json; without it AWS's classes speak.",
)
spot_history_age_option = click.option(
    "--spot-history-age", help="How long before the run they end, 3d: the older, the less they say."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
