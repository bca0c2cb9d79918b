"""The measured rows of one instance type, with what the catalogue says of it."""

from __future__ import annotations

from planner.inputs import Gpu, InstanceType
from planner.models import Configurations, StepTerms, StepTimeModel


class MeasuredType:
    """Rows of a fitted model."""

    def __init__(self, model: StepTimeModel, name: str) -> None:
        self.instance_type: InstanceType = model.catalog.instance_type_by_name[name]
        self.gpu: Gpu = model.catalog.gpu_of(self.instance_type)
        self.rows = model.rows_[name]
        placements = self.rows.placements
        self.configurations = Configurations(
            instance_type=self.instance_type,
            gpu=self.gpu,
            nodes=placements.nodes,
            gpu_batch=placements.gpu_batch,
            accumulation_steps=placements.accumulation_steps,
        )
        self.terms: StepTerms = model.terms(self.configurations)


def data_sheet_terms(model: StepTimeModel, name: str) -> StepTerms:
    return MeasuredType(model, name).terms
