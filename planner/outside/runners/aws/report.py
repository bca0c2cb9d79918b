"""What the nodes of a probe have said so far, in S3, and what follows from it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from planner.contract import first_fault
from planner.errors import ScavError, one_line
from planner.inputs import Measurement, Precision, digest_of
from planner.outside.aws import aws_errors
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

    phases: Mapping[str, str] = field(default_factory=dict)  # instance -> what it is doing
    last_words: Sequence[str] = ()  # of the first node that failed
    finished: bool = False
    records: Sequence[Mapping[str, Any]] = ()
    refusals: Sequence[str] = ()  # why AWS did not start nodes

    @property
    def failed(self) -> bool:
        return "failed" in self.phases.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReader:
    """Reads what the nodes write under the run's prefix, and what the group says of starting them."""

    client: Callable[[str], Any]
    region: str
    run_id: str
    bucket: str
    group: str

    def report(self) -> Report:
        with aws_errors(self.region):
            keys = self._keys()
            beats = self._objects(key for key in keys if key.startswith(f"{self.run_id}/heartbeats/"))
            return Report(
                phases={str(beat.get("instance_id")): one_line(str(beat.get("phase")), 40) for beat in beats},
                last_words=next((_lines(beat.get("log")) for beat in beats if beat.get("phase") == "failed"), []),
                finished=f"{self.run_id}/_SUCCESS" in keys,
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

    def _records(self, keys: Iterable[str]) -> list[dict[str, Any]]:
        """The first process writes them, so one node has them."""
        start, end = f"{self.run_id}/results/", f"/{RESULTS_FILE}"
        return self._objects(key for key in keys if key.startswith(start) and key.endswith(end))

    def _objects(self, keys: Iterable[str]) -> list[dict[str, Any]]:
        """The JSON objects in these files, one per line; anything else was not written by a node of ours."""
        s3 = self.client("s3")
        bodies: list[bytes] = [s3.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys]
        values = [_parsed(line) for body in bodies for line in body.decode("utf-8", errors="replace").splitlines()]
        return [value for value in values if isinstance(value, dict)]

    def _refusals(self) -> list[str]:
        """Since a node was last started: newest come first."""
        answer = self.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=self.group, MaxRecords=20)
        recent = itertools.takewhile(lambda activity: activity["StatusCode"] != "Successful", answer["Activities"])
        failed = [activity for activity in recent if activity["StatusCode"] == "Failed"]
        return [str(activity.get("StatusMessage") or activity.get("Description")) for activity in failed]


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _lines(value: object) -> list[str]:
    return [str(line) for line in value] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait before giving up on a cluster, in seconds since it was applied."""

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
        return ClusterFailed(f"a node failed{f': {one_line(words)}' if words else ''}")
    if report.refusals and silent and elapsed_seconds > patience.first_node_seconds:
        return NoCapacity(f"AWS does not start {silent} of {nodes} nodes: {one_line(report.refusals[0])}")
    if silent and elapsed_seconds > patience.first_report_seconds:
        return ClusterFailed(f"{silent} of {nodes} nodes did not report within {patience.first_report_seconds:.0f} s")
    if elapsed_seconds > patience.total_seconds:
        return ClusterFailed(f"not finished after {patience.total_seconds:.0f} s; raise --max-duration")
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
    given: dict[str, Any] = {"instance_type": instance_type, "precision": precision}
    if image:
        given["image_digest"] = digest_of(image)
    rows, failures = [], []
    for record in records:
        size = one_line(str(record.get("gpu_batch")), 20)
        if record.get("outcome") != "measured":
            failures.append(f"local batch {size}: {one_line(str(record.get('reason')))}")
            continue
        # The image may hold probes of another version, which measure more than this one knows.
        known = {name: value for name, value in record.items() if name in Measurement.model_fields}
        try:
            rows.append(Measurement.model_validate(known | given))
        except ValidationError as error:
            fault = first_fault(error, Measurement)
            failures.append(f"local batch {size}: unusable result ({fault.key}: {one_line(fault.message)})")
    return _marked(rows, records), failures


def _marked(rows: list[Measurement], records: Sequence[Mapping[str, Any]]) -> list[Measurement]:
    """The largest batch that fitted knows the smallest that did not."""
    sizes = [record.get("gpu_batch") for record in records if record.get("outcome") == "out_of_memory"]
    too_large = min((size for size in sizes if isinstance(size, int)), default=None)
    if not rows or too_large is None:
        return rows
    largest = max(rows, key=lambda row: row.gpu_batch)
    return [row.model_copy(update={"out_of_memory_at": too_large}) if row is largest else row for row in rows]
