"""Which GPU machines can be rented, what they can do and what they cost, on a given day."""

from planner.catalog.gpu_query import GpuQuery, parse_gpu_query
from planner.catalog.selection import parse_pattern, select_instance_types
from planner.catalog.snapshot import format_catalog, parse_catalog
from planner.catalog.tables import (
    Catalog,
    Gpu,
    InstanceType,
    Offer,
    Precision,
    RegionPrices,
    Source,
)

__all__ = [
    "Catalog",
    "Gpu",
    "GpuQuery",
    "InstanceType",
    "Offer",
    "Precision",
    "RegionPrices",
    "Source",
    "format_catalog",
    "parse_catalog",
    "parse_gpu_query",
    "parse_pattern",
    "select_instance_types",
]
