"""`run.data`: what the job reads, and where it is: copied to each node, mounted, or a volume of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.contract import Contract, text_form
from planner.inputs.job.fields import Bytes

DataKind = Literal["s3", "lustre", "snapshot"]
MOST_COPIED_BYTES = 15e12  # what still fits a gp3 volume beside the rest

DataName = Annotated[
    str, text_form(r"^[a-z0-9][a-z0-9_-]{0,31}$", "small letters, digits, - and _, at most 32 of them (train)")
]
# Nothing in it means anything to IAM, where * and ? stand for other characters, and ${ begins a variable.
DataUri = Annotated[
    str,
    text_form(
        r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_.=+@:,/-]{0,400})?"
        r"|fs-[0-9a-f]{8,17}/[A-Za-z0-9_-]{1,8}|snap-[0-9a-f]{8,17})$",
        "a place in S3 (s3://bucket/folder/), an FSx for Lustre file system with its mount name (fs-0123456789abcdef0/"
        "abcdefgh), or an EBS snapshot (snap-0123456789abcdef0)",
    ),
]


class DataSource(Contract):
    """Something that the job reads, which it finds in a folder of `SCAV_DATA_DIR`."""

    name: DataName = Field(description="of that folder")
    uri: DataUri = Field(
        description="s3://bucket/folder/ is copied to every node, to its local NVMe disks if they hold it; "
        "fs-ID/MOUNTNAME (FSx for Lustre) is mounted; snap-ID is a volume of every node"
    )
    size: Bytes | None = Field(
        default=None, description="of what is copied: every node has room for it, and starting takes that much longer"
    )

    @property
    def kind(self) -> DataKind:
        return "s3" if self.uri.startswith("s3://") else "lustre" if self.uri.startswith("fs-") else "snapshot"

    @model_validator(mode="after")
    def _says_what_it_takes(self) -> Self:
        if self.kind == "s3" and self.size is None:
            raise ValueError(f"{self.uri} is copied to every node, so size must say how much that is (150GB)")
        if self.kind != "s3" and self.size is not None:
            raise ValueError(f"size is of what is copied, and {self.uri} is not")
        return self


def data_fault(sources: Sequence[DataSource]) -> str | None:
    """What is wrong with all of them together, in one sentence."""
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        return f"two of them have the name {twice}"
    if (copied := copied_bytes(sources)) > MOST_COPIED_BYTES:
        return f"{copied / 1e12:,.0f} TB are more than a node's volume holds; mount FSx for Lustre instead"
    return None


def copied_bytes(sources: Sequence[DataSource]) -> float:
    return sum(source.size or 0.0 for source in sources)
