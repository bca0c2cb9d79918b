"""`scav tune --on aws`: rent what is expected to repay its price, measure, destroy, look again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.confirm import confirm_spending
from planner.cli.inputs import load_inputs
from planner.cli.probe_aws import AwsNotebook, AwsOptions, check_access, open_runner, probe_workspace, say

if TYPE_CHECKING:
    from planner.inputs import PlanInputs, Ran
    from planner.outside.runners import ClusterRunner
    from planner.probing import Belief, RentedSpace, Visit
    from planner.search import Survey


def tune_on_aws(job: Path, options: AwsOptions) -> None:
    from planner.errors import InputError, ScavError
    from planner.inputs import placeholder_fault
    from planner.outside.runners import PROBES_FOLDER, probing
    from planner.outside.what_ran import ran_in_image
    from planner.probing import missing_answers, probe_in_turn, rented_space

    if fault := placeholder_fault(options.command):
        raise InputError(fault)
    overrides = {"instance_types": list(options.instance_types)} if options.instance_types else {}
    inputs = load_inputs(job, overrides, None)
    if inputs.job_file.job.workload.transformer is not None:
        raise InputError(
            "rented clusters are tuned for jobs whose model is whole on every GPU: measure with scav probe",
            file=inputs.job_file.file,
            key="workload.transformer",
        )
    rented = rented_space(inputs, spot=options.spot)
    if not rented.start:
        raise ScavError("no probe is worth its price for this job, or nothing can be probed: scav plan says why")
    command = options.command or inputs.job_file.job.run.command
    ran = ran_in_image(command, inputs.job_file.job.run.image)
    search = _AwsSearch(job, overrides, inputs, rented, ran, options)
    if options.dry_run:
        click.echo("\n".join(search.start_in_words()))
        return
    if missing := missing_answers(inputs.job_file.job, command):
        raise InputError(f"set {', '.join(missing)} to probe on AWS", file=inputs.job_file.file)
    check_access(options.profile, rented.offers[0].region)
    confirm_spending(
        "Rents clusters of at most 4 nodes, one after the other, while they are expected to repay their price, and "
        "destroys each.",
        options.max_usd,
        yes=options.yes,
    )
    folder = Path(inputs.job_file.file).parent
    notebook = AwsNotebook(folder)
    with (
        probing(folder / PROBES_FOLDER),
        open_runner(options.profile, notebook, patience_seconds=options.patience_seconds) as runner,
    ):
        probe_in_turn(
            rented.space,
            rented.start,
            search.believe,
            lambda visit: search.measure(visit, runner, notebook),
            tell=search.tell,
        )
    search.show_plan()


class _AwsSearch:
    """What is known so far, what it cost, and saying so."""

    def __init__(
        self,
        job: Path,
        overrides: dict[str, list[str]],
        inputs: PlanInputs,
        rented: RentedSpace,
        ran: Ran,
        options: AwsOptions,
    ) -> None:
        self.job, self.overrides, self.inputs, self.rented = job, overrides, inputs, rented
        self.ran, self.options = ran, options
        self.spent_usd = 0.0
        self._surveyed: tuple[PlanInputs, Survey] | None = None

    @property
    def survey(self) -> Survey:
        """Of the inputs as they are."""
        from planner.search import take_survey

        if self._surveyed is None or self._surveyed[0] is not self.inputs:
            self._surveyed = self.inputs, take_survey(self.inputs)
        return self._surveyed[1]

    def believe(self) -> Belief:
        from planner.outside.input_files import load_plan_inputs

        self.inputs = load_plan_inputs(self.job, self.overrides, None)
        return self.rented.believe(self.inputs, self.survey)

    def measure(self, visit: Visit, runner: ClusterRunner, notebook: AwsNotebook) -> bool:
        """False where the next cluster could exceed what may be spent."""
        from planner.outside.runners import PROBES_FOLDER, NoCapacity
        from planner.units import format_usd

        cluster = self.rented.cluster(self.inputs, self.survey, visit)
        left = self.options.max_usd - self.spent_usd
        if cluster.max_usd > left:
            say(f"{cluster.name} could cost {format_usd(cluster.max_usd)}, and {format_usd(left)} are left: enough")
            return False
        command = self.options.command or self.inputs.job_file.job.run.command
        noise_is_known = self.inputs.measured_noise is not None or notebook.knows_noise()
        folder = Path(self.inputs.job_file.file).parent / PROBES_FOLDER
        workspace = probe_workspace(self.inputs, cluster, command, self.ran, folder, measure_noise=not noise_is_known)
        outcome = runner.run(cluster, *workspace, left)
        self.spent_usd += outcome.usd
        say(f"{cluster.name}: destroyed; cost at most {format_usd(outcome.usd)}")
        if isinstance(outcome.failure, NoCapacity):
            say(f"Not measured: {cluster.name}: {outcome.failure}")
        elif outcome.failure is not None:
            raise outcome.failure
        runner.interrupts.raise_if_received()
        return True

    def tell(self, belief: Belief, visit: Visit | None) -> None:
        from planner.probing import best_measured
        from planner.units import counted, format_usd

        best = best_measured(belief.measured)
        if best is None:
            return
        space = self.rented.space
        name = self.rented.offers[int(space.instance_type[best])].instance_type
        where = f"{space.nodes[best]} x {name} at local batch {space.gpu_batch[best]:,}"
        line = f"{counted(len(belief.measured), 'probe')} for {format_usd(self.spent_usd)}: best so far {where}"
        if visit is None:
            line += "; no further probe is expected to repay its price"
        elif visit.gain_usd:
            line += f"; the next is expected to save {format_usd(visit.gain_usd)}"
        say(line)

    def start_in_words(self) -> list[str]:
        from planner.probing import by_cluster
        from planner.units import format_usd

        clusters = [
            self.rented.cluster(self.inputs, self.survey, visit)
            for visit in by_cluster(self.rented.space, self.rented.start)
        ]
        lines = [
            f"{each.name}, local batch {', '.join(f'{batch:,}' for batch in each.gpu_batches)}: "
            f"about {format_usd(each.expected_usd)}, at most {format_usd(each.max_usd)}"
            for each in clusters
        ]
        return [*lines, f"then what is expected to repay its price; in all at most {format_usd(self.options.max_usd)}"]

    def show_plan(self) -> None:
        from planner.cli.screen import show
        from planner.plan import make_plan, plan_page

        show(plan_page(make_plan(self.inputs, self.survey)))
        click.echo(f"Next: scav plan {self.job}")
