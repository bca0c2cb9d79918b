"""`scav probe --on aws`: rent, measure, destroy, one small cluster after the other."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from planner.cli.confirm import confirm_spending
from planner.cli.inputs import load_inputs
from planner.cli.probe_table import adapter_note, probe_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.inputs import Measurement, PlanInputs, Ran
    from planner.outside.runners import ClusterRunner, Identity
    from planner.probing import ProbeCluster


class AwsOptions(NamedTuple):
    """What the command line says about renting."""

    command: tuple[str, ...]
    nodes: tuple[int, ...]
    instance_types: tuple[str, ...]
    spot: bool
    max_usd: float
    longest_seconds: float | None
    patience_seconds: float
    profile: str | None
    force: bool
    dry_run: bool
    yes: bool


def probe_on_aws(job: Path, options: AwsOptions) -> None:
    from planner.errors import InputError, ScavError
    from planner.inputs import placeholder_fault
    from planner.outside import store
    from planner.outside.what_ran import ran_in_image
    from planner.probing import missing_answers, probe_clusters, refuse_too_small_a_cap, still_to_measure
    from planner.search import take_survey
    from planner.units import counted

    if fault := placeholder_fault(options.command):
        raise InputError(fault)
    overrides = {"instance_types": list(options.instance_types)} if options.instance_types else {}
    inputs = load_inputs(job, overrides, None)
    clusters = probe_clusters(
        inputs,
        take_survey(inputs),
        node_counts=options.nodes,
        spot=options.spot,
        longest_seconds=options.longest_seconds,
    )
    if not clusters:
        raise ScavError("no instance type of the catalogue can be probed for this job: scav plan may say why")
    command = options.command or inputs.job_file.job.run.command
    ran = ran_in_image(command, inputs.job_file.job.run.image)
    file = Path(inputs.job_file.file).parent / store.MEASUREMENTS_FILE
    known = [] if options.force else ran.known(store.load_measurements(file)[0].rows)
    to_do = still_to_measure(clusters, known)
    say(f"{counted(len(clusters), 'cluster')} on aws, {len(clusters) - len(to_do)} measured before")
    if not to_do:
        if ran.key is not None and not options.dry_run:
            store.move_to_the_end(file, ran.key)
        return
    click.echo("\n".join(_price_table(to_do)), err=not options.dry_run)
    if options.dry_run:
        click.echo(_cap_in_words(to_do, options.max_usd))
        return
    refuse_too_small_a_cap(to_do, options.max_usd)
    if missing := missing_answers(inputs.job_file.job, command):
        raise InputError(f"set {', '.join(missing)} to probe on AWS", file=inputs.job_file.file)
    check_access(options.profile, to_do[0].region)
    most = min(options.max_usd, sum(cluster.max_usd for cluster in to_do))
    confirm_spending(
        f"Rents up to {counted(len(to_do), 'cluster')}, one after the other, and destroys each.", most, yes=options.yes
    )
    _measure_all(inputs, to_do, command, ran, options)


def clean_up(folder: Path, profile: str | None) -> int:
    """Destroys what earlier probes left in this job's folder and keeps what they had measured; how many there were."""
    from planner.outside.runners import PROBES_FOLDER, leftovers, probing

    probes = folder / PROBES_FOLDER
    if not leftovers(probes):
        return 0
    notebook = AwsNotebook(folder)
    with probing(probes), open_runner(profile, notebook, patience_seconds=0.0) as runner:
        found = leftovers(probes)
        for workspace in found:
            runner.collect_and_destroy(workspace)
            runner.interrupts.raise_if_received()
    return len(found)


def list_leftovers(folder: Path) -> list[str]:
    from planner.outside.runners import PROBES_FOLDER, leftovers

    return [str(path) for path in leftovers(folder / PROBES_FOLDER)]


def check_access(profile: str | None, region: str) -> None:
    """Credentials that work and a Terraform, or one line before anything is created."""
    from planner.outside import aws
    from planner.outside.terraform import find_executable

    find_executable()
    say(f"AWS account {aws.fetch_account(aws.open_session(profile), region)}, {region}")


@contextlib.contextmanager
def open_runner(profile: str | None, notebook: AwsNotebook, *, patience_seconds: float) -> Iterator[ClusterRunner]:
    from planner.outside.aws import Access
    from planner.outside.runners import ClusterRunner, Interrupts

    with Interrupts() as interrupts:
        yield ClusterRunner(
            access=Access.of_profile(profile, os.environ),
            interrupts=interrupts,
            say=say,
            keep=notebook.add,
            first_report_seconds=patience_seconds,
            poll_seconds=_poll_seconds(),
        )


def _poll_seconds() -> float:
    from planner.errors import InputError

    try:
        return float(os.environ.get("SCAV_POLL_SECONDS", "10"))
    except ValueError:
        raise InputError("not a number of seconds", key="SCAV_POLL_SECONDS") from None


class AwsNotebook:
    """Measurements go to the file as they come; their cluster's cost is shared out among them."""

    def __init__(self, folder: Path, *, repeats: bool = False) -> None:
        self.folder, self.repeats = folder, repeats  # of what is known already
        self.added: list[Measurement] = []

    def add(self, rows: Sequence[Measurement], usd: float) -> None:
        from planner.outside import store
        from planner.probing import not_in

        file = self.folder / store.MEASUREMENTS_FILE
        for row in rows if self.repeats else not_in(store.load_measurements(file)[0].rows, rows):
            priced = row.model_copy(update={"probe_usd": round(usd / len(rows), 6)} if usd else {})
            store.append_line(file, priced.model_dump_json(exclude_defaults=True))
            self.added.append(priced)

    def knows_noise(self) -> bool:
        """From one cluster: it belongs to the job, and the next one would train it to another state."""
        from planner.inputs import measured_noise

        return measured_noise(self.added) is not None


def _measure_all(
    inputs: PlanInputs, clusters: Sequence[ProbeCluster], command: tuple[str, ...], ran: Ran, options: AwsOptions
) -> None:
    """Cheapest first, as long as the next one's maximum is within what is left."""
    from planner.errors import ScavError
    from planner.outside.runners import PROBES_FOLDER, NoCapacity, probing
    from planner.units import counted, format_usd

    folder = Path(inputs.job_file.file).parent
    notebook, spent = AwsNotebook(folder, repeats=options.force), 0.0
    skipped: list[str] = []
    with (
        probing(folder / PROBES_FOLDER),
        open_runner(options.profile, notebook, patience_seconds=options.patience_seconds) as runner,
    ):
        for cluster in clusters:
            if spent + cluster.max_usd > options.max_usd:
                skipped.append(f"{cluster.name}: could exceed --max-cost")
                continue
            noise_is_known = inputs.measured_noise is not None or notebook.knows_noise()
            workspace = probe_workspace(
                inputs, cluster, command, ran, folder / PROBES_FOLDER, measure_noise=not noise_is_known
            )
            outcome = runner.run(cluster, *workspace, options.max_usd - spent)
            spent += outcome.usd
            say(f"{cluster.name}: destroyed; cost at most {format_usd(outcome.usd)}")
            if isinstance(outcome.failure, NoCapacity):
                skipped.append(f"{cluster.name}: {outcome.failure}")
            elif outcome.failure is not None:
                raise outcome.failure
            runner.interrupts.raise_if_received()
    for reason in skipped:
        say(f"Not measured: {reason}")
    if not notebook.added:
        raise ScavError("nothing was measured")
    click.echo("\n".join(probe_table(notebook.added)))
    cost = format_usd(spent)
    added = counted(len(notebook.added), "measurement")
    click.echo(f"\n{added} added for at most {cost}; everything is destroyed.")
    if note := adapter_note(notebook.added):
        click.echo(note, err=True)


def probe_workspace(
    inputs: PlanInputs, cluster: ProbeCluster, command: tuple[str, ...], ran: Ran, probes: Path, *, measure_noise: bool
) -> tuple[Path, dict[str, str], Identity]:
    import secrets

    from planner.outside import assets
    from planner.outside.render import MODULE, PROBE_WORKSPACE, render_probe
    from planner.outside.runners import Identity
    from planner.probing import probe_variables

    job = inputs.job_file.job
    run_id = f"{job.name}-{secrets.token_hex(3)}"  # two people may probe the same job in one account
    instance_type = inputs.catalog.instance_type_by_name[cluster.instance_type]
    files = render_probe(
        probe_variables(job, cluster, instance_type, command, run_id, measure_noise=measure_noise),
        templates=assets.load_templates(PROBE_WORKSPACE),
        module=assets.load_module(MODULE),
    )
    identity = Identity(
        instance_type.name, cluster.region, cluster.precision, job.run.image, run_key=ran.key, run_command=ran.command
    )
    return probes / run_id, files, identity


def _price_table(clusters: Sequence[ProbeCluster]) -> list[str]:
    from planner.plan import table
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


def say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more: no reason to leave a cluster running
        click.echo(line, err=True)
