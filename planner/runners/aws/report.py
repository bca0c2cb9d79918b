"""What the nodes of a probe have said so far, in S3, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.aws import aws_errors
from planner.catalog import Precision
from planner.errors import ScavError, one_line
from planner.measurements import Measurement
from planner.units import format_usd

RESULTS_FILE = "probes.jsonl"
_LAST_LINES = 5


class ClusterFailed(ScavError):
    """The cluster was rented and gave no answer."""


class NoCapacity(ClusterFailed):
    """Nothing is wrong with the job: another type may be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One look at the run."""

    phases: Mapping[str, str]  # instance -> what it is doing
    last_words: Sequence[str]  # of the first node that failed
    finished: bool
    records: Sequence[dict[str, Any]]
    refusals: Sequence[str]  # why AWS did not start nodes

    @property
    def failed(self) -> bool:
        return "failed" in self.phases.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Correspondent:
    """Reads what the nodes write under the run's prefix, and what the group says of starting them."""

    client: Callable[[str], Any]
    region: str
    run_id: str
    bucket: str
    group: str

    def report(self) -> Report:
        with aws_errors(self.region):
            keys = self._keys()
            beats = [json.loads(self._text(key)) for key in keys if key.startswith(f"{self.run_id}/heartbeats/")]
            finished = f"{self.run_id}/_SUCCESS" in keys
            return Report(
                phases={str(beat["instance_id"]): str(beat["phase"]) for beat in beats},
                last_words=next((beat.get("log", []) for beat in beats if beat["phase"] == "failed"), []),
                finished=finished,
                records=self._records(keys),
                refusals=self._refusals(),
            )

    def records(self) -> list[dict[str, Any]]:
        with aws_errors(self.region):
            return self._records(self._keys())

    def _keys(self) -> list[str]:
        pages = self.client("s3").get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.bucket, Prefix=f"{self.run_id}/")
        return [item["Key"] for page in found for item in page.get("Contents", [])]

    def _text(self, key: str) -> str:
        body: bytes = self.client("s3").get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return body.decode("utf-8", errors="replace")

    def _records(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The first process writes them, so one node has them."""
        files = [key for key in keys if key.startswith(f"{self.run_id}/results/") and key.endswith(f"/{RESULTS_FILE}")]
        return [json.loads(line) for key in files for line in self._text(key).splitlines() if line.strip()]

    def _refusals(self) -> list[str]:
        answer = self.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=self.group, MaxRecords=20)
        failed = [activity for activity in answer["Activities"] if activity["StatusCode"] == "Failed"]
        return [str(activity.get("StatusMessage") or activity.get("Description")) for activity in failed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait before giving up on a cluster, in seconds since its apply."""

    first_node_seconds: float  # after AWS has refused to start one
    first_report_seconds: float
    total_seconds: float
    max_usd: float


def reason_to_give_up(
    report: Report, patience: Patience, *, nodes: int, elapsed_seconds: float, usd: float
) -> ClusterFailed | None:
    """None while it is worth waiting."""
    silent = nodes - len(report.phases)
    if report.failed:
        words = " | ".join(line.strip() for line in list(report.last_words)[-_LAST_LINES:] if line.strip())
        return ClusterFailed(f"the script failed on a node{f': {one_line(words)}' if words else ''}")
    if report.refusals and silent and elapsed_seconds > patience.first_node_seconds:
        return NoCapacity(f"AWS does not start {silent} of {nodes} nodes: {one_line(report.refusals[0])}")
    if silent and elapsed_seconds > patience.first_report_seconds:
        return ClusterFailed(f"{silent} of {nodes} nodes did not report within {patience.first_report_seconds:.0f} s")
    if elapsed_seconds > patience.total_seconds:
        return ClusterFailed(f"not finished after {patience.total_seconds:.0f} s")
    if usd > patience.max_usd:
        return ClusterFailed(f"its cost reached {format_usd(patience.max_usd)}, all that --max-cost leaves for it")
    return None


def status(report: Report, nodes: int) -> str:
    """For somebody who waits."""
    if not report.phases:
        refused = f"; AWS says: {one_line(report.refusals[0], 120)}" if report.refusals else ""
        return f"waiting for {nodes} nodes{refused}"
    counts = {phase: list(report.phases.values()).count(phase) for phase in dict.fromkeys(report.phases.values())}
    doing = ", ".join(f"{count} {phase}" for phase, count in counts.items())
    return f"{len(report.phases)} of {nodes} nodes: {doing}; {len(report.records)} batch sizes done"


def measurements_of(
    records: Sequence[Mapping[str, Any]], instance_type: str, precision: Precision, image: str | None
) -> tuple[list[Measurement], list[str]]:
    """What was measured, and one line for each batch size that was not."""
    given = {"instance_type": instance_type, "precision": precision}
    digest = {"image_digest": image.rpartition("@")[2]} if image else {}
    rows = [
        Measurement.model_validate(
            {name: value for name, value in record.items() if name != "outcome"} | given | digest
        )
        for record in records
        if record["outcome"] == "measured"
    ]
    failures = [record for record in records if record["outcome"] != "measured"]
    too_large = min((record["gpu_batch"] for record in failures if record["outcome"] == "out_of_memory"), default=None)
    if rows and too_large is not None:
        largest = max(rows, key=lambda row: row.gpu_batch)
        marked = largest.model_copy(update={"out_of_memory_at": too_large})
        rows = [marked if row is largest else row for row in rows]
    return rows, [f"local batch {record['gpu_batch']}: {record['reason']}" for record in failures]
