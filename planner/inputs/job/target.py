"""`workload.target` and `workload.convergence`: how much training is enough, at one batch size and at others."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from planner.contract import Contract, WithLaterKeys
from planner.inputs.job.fields import LARGEST_BATCH, Count, Samples


class TrainingAmount(WithLaterKeys):
    """How much training was, or is, enough."""

    later_keys: ClassVar[frozenset[str]] = frozenset({"tokens"})

    samples: Samples | None = Field(default=None, description="samples processed until the target metric is reached")
    epochs: Annotated[float, Field(ge=1e-6, le=1e9)] | None = Field(
        default=None, description="the same as passes over the data set; give one of the three"
    )
    tokens: Samples | None = Field(default=None, description="the same in tokens of workload.transformer's sequences")

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        if sum(amount is not None for amount in (self.samples, self.epochs, self.tokens)) != 1:
            raise ValueError("give either samples or epochs, or tokens beside workload.transformer")
        return self

    def samples_needed(self, dataset_samples: int, sample_tokens: int = 1) -> float:
        if self.tokens is not None:
            return self.tokens / sample_tokens
        return self.samples if self.samples is not None else (self.epochs or 0.0) * dataset_samples


class Target(TrainingAmount):
    """When the job is done, said for one batch size."""

    reference_batch: Count = Field(
        le=LARGEST_BATCH, description="the global batch size at which that many samples are needed"
    )


class ConvergenceRun(TrainingAmount):
    """One training run that reached the target."""

    batch: Count = Field(le=LARGEST_BATCH, description="its global batch size")


class Convergence(Contract):
    """What is known of how the samples to the target grow with the batch; leave out what is not."""

    runs: tuple[ConvergenceRun, ...] = Field(
        default=(), max_length=1000, description="runs that reached the target at other batch sizes"
    )
    noise_scale: Samples | None = Field(
        default=None, description="gradient noise scale in samples, as a noise probe reports it"
    )
