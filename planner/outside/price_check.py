"""The prices of a workspace's plan, held against those of the catalogue that scav brings along."""

from __future__ import annotations

from pathlib import Path

from planner.outside import assets, store
from planner.plan import Plan, PriceComparison, compare_prices


def check_prices(workspace: Path, plan: Plan) -> PriceComparison:
    """The plan's catalogue is looked for in the workspace and beside it, where the job mostly is."""
    known = store.load_catalog(assets.embedded_catalog(), beside=workspace)
    if plan.inputs.catalog_sha256 == known.sha256:
        return compare_prices(plan, known.catalog, known)
    store.refuse_future(plan.inputs.catalog_date, file=str(workspace / store.PLAN_FILE), key="inputs.catalog_date")
    for folder in (workspace, workspace.resolve().parent):
        found = store.load_catalog_by_hash(plan.inputs.catalog_sha256, beside=folder, name=plan.inputs.catalog)
        if found is not None:
            return compare_prices(plan, found.catalog, known)
    return compare_prices(plan, None, known)
