"""What `scav catalog` shows: machines in a table, and all that is known of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    from planner.inputs import Catalog, InstanceType, Listing

PIPE_WIDTH = 100
INTERRUPTION = ("<5 %", "5-10 %", "10-15 %", "15-20 %", ">20 %")


def listing_table(listings: Sequence[Listing], with_regions: bool) -> Table:
    titles = ["GiB", "vCPU", "RAM", "Gbit/s", "TFLOPS", "$/h", "spot $/h", "$/GPU", "$/PFLOPS"]
    if with_regions:
        titles = [title for title in titles if title not in ("vCPU", "RAM")]
    table = _table(["type", *(["region"] if with_regions else []), "GPUs"], titles)
    for row in listings:
        numbers = {
            "GiB": f"{row.gpu_memory_gib:.0f}",
            "vCPU": str(row.vcpu),
            "RAM": f"{row.ram_gib:.0f}",
            "Gbit/s": f"{row.network_gbps:g}",
            "TFLOPS": _number(row.node_tflops, 0),
            "$/h": _number(row.on_demand_usd, 3) if row.offered else "not offered",
            "spot $/h": _number(row.spot_usd, 3),
            "$/GPU": _number(row.usd_per_gpu, 3),
            "$/PFLOPS": _number(None if row.usd_per_tflops is None else row.usd_per_tflops * 1000, 2),
        }
        place = [row.region or "-"] if with_regions else []
        table.add_row(row.instance_type, *place, f"{row.gpu_count}x {row.gpu}", *(numbers[t] for t in titles))
    return table


def fact_lines(catalog: Catalog, machine: InstanceType) -> Iterator[str]:
    gpu = catalog.gpu_of(machine)
    memory = f"{gpu.memory_gib:g} GiB usable ({gpu.nominal_memory_gb} GB)"
    cards = f"{machine.network_cards} card{'s' * (machine.network_cards > 1)}, {machine.efa_interfaces} with EFA"
    peaks = ", ".join(f"{precision} {peak:g}" for precision, peak in gpu.dense_tflops.items())
    facts = {
        "GPUs": f"{machine.gpu_count}x {gpu.name}",
        "GPU memory": f"{memory}, {gpu.memory_bandwidth_gb_per_second:g} GB/s",
        "dense peak per GPU": f"{peaks} TFLOPS",
        "GPU link": f"{machine.gpu_link}, {machine.gpu_link_gb_per_second:g} GB/s per GPU and direction",
        "vCPU, RAM": f"{machine.vcpu}, {machine.ram_gib:g} GiB",
        "network": f"{machine.network_baseline_gbps:g} Gbit/s, peak {machine.network_peak_gbps:g}, {cards}",
        "measured all-reduce": f"{machine.measured_allreduce_gbps or 0:g} Gbit/s between nodes",
        "local SSD": f"{machine.local_ssd_gb} GB",
        "quota": f"vCPUs of all {machine.quota_class.upper()} types",
    }
    for label, fact in facts.items():
        if label != "measured all-reduce" or machine.measured_allreduce_gbps is not None:
            yield f"  {label:<21}{fact}"


def source_lines(sources: Sequence[dict[str, Any]]) -> Iterator[str]:
    import textwrap

    for source in sources:
        yield from textwrap.wrap(
            f"{source['date']}  {source['title']}",
            width=PIPE_WIDTH,
            initial_indent="  ",
            subsequent_indent=" " * 14,
        )
        if source["url"]:
            yield " " * 14 + source["url"]


def offer_table(offers: Sequence[dict[str, Any]]) -> Table:
    table = _table(["region", "zone"], ["spot $/h", "on-demand $/h", "reclaimed a month"])
    for offer in offers:
        interruption = offer["interruption_class"]
        reclaimed = "-" if interruption is None else INTERRUPTION[interruption]
        for zone, spot in offer["spot_usd"].items():
            on_demand = _number(offer["on_demand_usd"], 4)
            table.add_row(offer["region"], zone, _number(spot, 4), on_demand, reclaimed)
    return table


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in texts:
        table.add_column(title)
    for title in numbers:
        table.add_column(title, justify="right")
    return table


def console() -> Console:
    """As wide as the terminal; elsewhere of a fixed width, so that the output is the same everywhere."""
    from rich.console import Console

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would end scav with an error; scav knows that it is none

    on_terminal = PlainConsole(highlight=False, markup=False)
    return on_terminal if on_terminal.is_terminal else PlainConsole(highlight=False, markup=False, width=PIPE_WIDTH)


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"
