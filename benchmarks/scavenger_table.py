"""Total time of Scavenger's sixteen configurations, predicted from the four corners of its grid.

The numbers are Scavenger's (Tyagi and Sharma, "Scavenger: A Cloud Service for Optimizing Cost and Performance of ML
Training", CCGrid 2023, arXiv:2303.06659): ResNet18 on CIFAR-10 to one accuracy on K E2-standard-4 nodes; its partial
search is within 4 % of total time on average. Known here: hours at the corners, and the epochs that the two corners
with K = 8 took. Samples are scav's convergence model on those two runs; a step is work shared by the nodes, a launch,
and a wait that grows with the nodes. Beside it: constant samples, the nearest corner, the same model on the whole grid.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from scipy.optimize import nnls

from planner.columns import Flags, Floats
from planner.models.convergence.model import ConvergenceModel

BATCHES = np.array([384, 512, 768, 1024])
NODES = np.array([20, 16, 12, 8])
# Rows are batches, columns are nodes.
HOURS = np.array(
    [[6.80, 7.34, 9.17, 12.40], [6.13, 6.60, 7.69, 10.51], [4.80, 5.18, 6.51, 9.55], [4.25, 4.61, 5.92, 8.68]]
)
EPOCHS_BY_NODES = {8: (230.4, 197.3, 187.7, 178.2), 16: (233.5, 203.4, 185.6, 166.9)}
DATASET_SAMPLES = 50_000
CORNERS = np.zeros(HOURS.shape, dtype=bool)
CORNERS[np.ix_([0, -1], [0, -1])] = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    corner_samples = samples([(BATCHES[i], EPOCHS_BY_NODES[8][i]) for i in (0, -1)])
    all_samples = samples([row for epochs in EPOCHS_BY_NODES.values() for row in zip(BATCHES, epochs, strict=True)])
    predicted = {
        "scav": hours(corner_samples, CORNERS),
        "constant samples": hours(np.full(len(BATCHES), corner_samples.mean()), CORNERS),
        "nearest corner": nearest_corner(),
        "whole grid (in sample)": hours(all_samples, np.ones_like(CORNERS)),
    }
    rows = [judge(name, table) for name, table in predicted.items()]
    print(json.dumps({"rows": rows}, indent=2) if arguments.json else as_markdown(rows, predicted["scav"]))


def samples(epochs: list[tuple[int, float]]) -> Floats:
    points = [(float(batch), value * DATASET_SAMPLES) for batch, value in epochs]
    return ConvergenceModel().fit(points).predict(BATCHES).p50


def hours(samples_needed: Floats, known: Flags) -> Floats:
    """Step time fitted to the known hours, relative errors, no term below zero."""
    batch, nodes = np.meshgrid(BATCHES.astype(float), NODES.astype(float), indexing="ij")
    steps = samples_needed[:, None] / batch
    terms = np.stack((batch / nodes, np.ones_like(batch), nodes)) * steps / 3600
    weights, _ = nnls((terms[:, known] / HOURS[known]).T, np.ones(int(known.sum())))
    return np.tensordot(weights, terms, axes=1)


def nearest_corner() -> Floats:
    row = [0 if batch**2 < BATCHES[0] * BATCHES[-1] else -1 for batch in BATCHES]
    column = [0 if nodes**2 > NODES[0] * NODES[-1] else -1 for nodes in NODES]
    return HOURS[np.ix_(row, column)]


def judge(name: str, table: Floats) -> dict[str, float | str]:
    error = 100 * np.abs(table / HOURS - 1)
    return {
        "model": name,
        "mape": float(error.mean()),
        "mape_without_corners": float(error[~CORNERS].mean()),
        "worst": float(error.max()),
    }


def as_markdown(rows: list[dict[str, float | str]], table: Floats) -> str:
    lines = ["| model | error of 16 % | without the corners % | worst % |", "|---|--:|--:|--:|"]
    lines += [
        f"| {row['model']} | {row['mape']:.1f} | {row['mape_without_corners']:.1f} | {row['worst']:.1f} |"
        for row in rows
    ]
    lines += ["", f"| hours, measured / scav | {' | '.join(f'K = {nodes}' for nodes in NODES)} |", "|---|" + "--:|" * 4]
    lines += [
        f"| B = {batch} | {' | '.join(f'{a:.2f} / {b:.2f}' for a, b in zip(HOURS[i], table[i], strict=True))} |"
        for i, batch in enumerate(BATCHES)
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
