"""`scav probe --on aws`: rent, measure, destroy, one small cluster after the other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from planner.cli.confirm import confirm_spending
from planner.cli.inputs import load_inputs
from planner.cli.probe_table import probe_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.job import Job
    from planner.measurements import Measurement
    from planner.plan import PlanInputs
    from planner.probe_clusters import ProbeCluster
    from planner.runners.aws.cluster import ClusterRunner, Measured


class AwsOptions(NamedTuple):
    """What the command line says about renting."""

    command: tuple[str, ...]
    nodes: tuple[int, ...]
    instance_types: tuple[str, ...]
    spot: bool
    max_usd: float
    longest_seconds: float
    patience_seconds: float
    profile: str | None
    dry_run: bool
    yes: bool


def probe_on_aws(job: Path, options: AwsOptions) -> None:
    from planner.errors import InputError, ScavError
    from planner.plan import look_out
    from planner.probe_clusters import missing_answers, probe_clusters, refuse_too_small_a_cap, still_to_measure

    overrides = {"instance_types": list(options.instance_types)} if options.instance_types else {}
    inputs = load_inputs(job, overrides, None)
    clusters = probe_clusters(
        inputs,
        look_out(inputs),
        node_counts=options.nodes,
        spot=options.spot,
        longest_seconds=options.longest_seconds,
    )
    if not clusters:
        raise ScavError("no instance type of the catalogue can run this job: scav plan says why")
    to_do = still_to_measure(clusters, inputs.measurements)
    _say(f"{len(clusters)} clusters on aws, {len(clusters) - len(to_do)} measured before")
    if not to_do:
        return
    click.echo("\n".join(_price_table(to_do)), err=not options.dry_run)
    if options.dry_run:
        click.echo(_cap_in_words(to_do, options.max_usd))
        return
    refuse_too_small_a_cap(to_do, options.max_usd)
    command = options.command or inputs.job_file.job.run.command
    if missing := missing_answers(inputs.job_file.job, command):
        raise InputError(f"set {', '.join(missing)} to probe on AWS", file=inputs.job_file.file)
    runner = _runner(options, to_do[0].region)
    most = min(options.max_usd, sum(cluster.max_usd for cluster in to_do))
    confirm_spending(
        f"Rents up to {len(to_do)} clusters, one after the other, and destroys each.", most, yes=options.yes
    )
    campaign = _Campaign(inputs=inputs, folder=Path(inputs.job_file.file).parent, command=command, runner=runner)
    campaign.run(to_do, options.max_usd)


def clean_up(folder: Path, job: Job, profile: str | None) -> int:
    """Destroys what earlier probes left in this job's folder and keeps what they had measured; how many there were."""
    from planner.runners.aws.cluster import salvaged
    from planner.runners.aws.teardown import PROBES_FOLDER, leftovers, probing, tear_down

    probes = folder / PROBES_FOLDER
    if not leftovers(probes):
        return 0
    with probing(probes):
        found, clients = leftovers(probes), _clients(profile)
        for workspace in found:
            records, instance_type = salvaged(workspace, clients)
            _append(records, instance_type, job, folder, usd=None)
            tear_down(workspace, clients, say=_say)
    return len(found)


def _runner(options: AwsOptions, region: str) -> ClusterRunner:
    """With credentials that work, or one line before anything is created."""
    from planner import aws
    from planner.runners.aws.cluster import ClusterRunner
    from planner.terraform import find_executable

    find_executable()
    account = aws.fetch_account(aws.open_session(options.profile), region)
    _say(f"AWS account {account}, {region}")
    return ClusterRunner(
        clients=_clients(options.profile),
        say=_say,
        first_report_seconds=options.patience_seconds,
        poll_seconds=float(os.environ.get("SCAV_POLL_SECONDS", "10")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Campaign:
    """All clusters of one command."""

    inputs: PlanInputs
    folder: Path
    command: tuple[str, ...]
    runner: ClusterRunner

    def run(self, clusters: Sequence[ProbeCluster], max_usd: float) -> None:
        """Cheapest first, as long as the next one's maximum is within what is left."""
        from planner.errors import ScavError
        from planner.runners.aws.report import NoCapacity
        from planner.runners.aws.teardown import PROBES_FOLDER, probing
        from planner.units import format_usd

        spent = 0.0
        rows: list[Measurement] = []
        skipped: list[str] = []
        with probing(self.folder / PROBES_FOLDER):
            for cluster in clusters:
                if spent + cluster.max_usd > max_usd:
                    skipped.append(f"{cluster.name}: could exceed --max-cost")
                    continue
                measured = self._measure(cluster, max_usd - spent)
                spent += measured.usd
                rows += _append(
                    measured.records, cluster.instance_type, self.inputs.job_file.job, self.folder, usd=measured.usd
                )
                _say(f"{cluster.name}: destroyed; cost about {format_usd(measured.usd)}")
                if isinstance(measured.failure, NoCapacity):
                    skipped.append(f"{cluster.name}: {measured.failure}")
                elif measured.failure is not None:
                    raise measured.failure
        for reason in skipped:
            _say(f"Not measured: {reason}")
        if not rows:
            raise ScavError("nothing was measured")
        click.echo("\n".join(probe_table(rows)))
        click.echo(f"\n{len(rows)} measurements added for about {format_usd(spent)}; everything is destroyed.")

    def _measure(self, cluster: ProbeCluster, max_usd: float) -> Measured:
        import secrets

        from planner import assets
        from planner.probe_clusters import workspace_values
        from planner.render import MODULE, PROBE_WORKSPACE, render_probe
        from planner.runners.aws.teardown import PROBES_FOLDER

        job = self.inputs.job_file.job
        run_id = f"{job.name}-{secrets.token_hex(3)}"  # two people may probe the same job in one account
        kind = self.inputs.catalog.instance_type_by_name[cluster.instance_type]
        files = render_probe(
            workspace_values(job, cluster, kind, self.command, run_id),
            templates=assets.load_templates(PROBE_WORKSPACE),
            module=assets.load_module(MODULE),
        )
        return self.runner.run(cluster, self.folder / PROBES_FOLDER / run_id, files, max_usd)


def _append(
    records: Sequence[dict[str, Any]], instance_type: str, job: Job, folder: Path, *, usd: float | None
) -> list[Measurement]:
    """The cluster's cost is shared out among what came of it."""
    from planner import store
    from planner.runners.aws.report import measurements_of

    rows, failures = measurements_of(records, instance_type, job.workload.precision, job.run.image)
    share = None if usd is None or not rows else round(usd / len(rows), 6)
    priced = [row.model_copy(update={"probe_usd": share}) for row in rows]
    for row in priced:
        store.append_line(folder / store.MEASUREMENTS_FILE, row.model_dump_json(exclude_defaults=True))
    for reason in failures:
        _say(f"{instance_type}: {reason}")
    return priced


def _price_table(clusters: Sequence[ProbeCluster]) -> list[str]:
    from planner.review.text import table
    from planner.units import format_usd

    heading = ("cluster", "region", "local batches", "minutes", "about", "at most")
    body = [
        (
            f"{cluster.name}{' spot' if cluster.spot else ''}",
            cluster.region,
            " ".join(f"{batch:,}" for batch in cluster.gpu_batches),
            f"{cluster.expected_seconds / 60:.0f}",
            format_usd(cluster.expected_usd),
            format_usd(cluster.max_usd),
        )
        for cluster in clusters
    ]
    minutes = sum(cluster.expected_seconds for cluster in clusters) / 60
    expected, most = sum(c.expected_usd for c in clusters), sum(c.max_usd for c in clusters)
    total = ("together", "", "", f"{minutes:.0f}", format_usd(expected), format_usd(most))
    return table([heading, *body, total], "<<<>>>")


def _cap_in_words(clusters: Sequence[ProbeCluster], max_usd: float) -> str:
    from planner.units import format_usd

    allowed = sum(cluster.max_usd <= max_usd for cluster in clusters)
    return f"Within --max-cost {format_usd(max_usd)}: {allowed} of {len(clusters)}, as far as the others leave enough."


def _clients(profile: str | None) -> Callable[[str], Callable[[str], Any]]:
    from planner import aws

    session = aws.open_session(profile)
    return lambda region: lambda service: aws.open_client(session, service, region)


def _say(line: str) -> None:
    click.echo(line, err=True)
