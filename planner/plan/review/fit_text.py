"""A fit as text for a terminal, at most 100 columns wide."""

from __future__ import annotations

from planner.plan.review.lines import entry, table
from planner.probing import FitReport
from planner.units import format_percent


def fit_text(report: FitReport) -> str:
    """What was fitted to, how well left-out probes are predicted, what limits that, and what would help."""
    lines = [entry("Job", report.job), entry("Evidence", _evidence(report))]
    if report.missing:
        lines.append(entry("Error", report.missing))
    else:
        lines += ["", *_errors(report)]
    lines.append("")
    lines += [entry("Limits" if index == 0 else "", line) for index, line in enumerate(report.limits)]
    lines += [entry("Next", report.advice)]
    return "\n".join(lines) + "\n"


def _evidence(report: FitReport) -> str:
    probes = " + ".join(f"{count} of {name}" for name, count in report.probes.items())
    total = sum(report.probes.values())
    step = f"{total} {'probe' if total == 1 else 'probes'} ({probes})" if probes else "no probes"
    again = f" in {report.measurements} measurements" if report.measurements > total else ""
    return f"{step}{again}; samples to the target {report.convergence}"


def _errors(report: FitReport) -> list[str]:
    heading = ("step time of probes left out", "model", "probes", "error", "inside their 90 % interval")
    rows = []
    for before, row in zip((None, *report.errors), report.errors, strict=False):
        kind = {"interpolation": "between the others", "extrapolation": "beyond the others"}[row.beyond]
        first = before is None or before.beyond != row.beyond
        inside = f"{row.inside} of {row.probes}"
        rows.append((kind if first else "", row.model, f"{row.probes}", _percent(row.error), inside))
    return table([heading, *rows], "<<>>>")


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %" if share < 0.1 else format_percent(share)
