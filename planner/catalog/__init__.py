"""Which GPU machines can be rented, what they can do and what they cost, on a given day."""

from planner.catalog.tables import (
    Catalog,
    Gpu,
    InstanceType,
    Offer,
    Precision,
    RegionPrices,
    Source,
)

__all__ = ["Catalog", "Gpu", "InstanceType", "Offer", "Precision", "RegionPrices", "Source"]
