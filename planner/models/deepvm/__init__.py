"""DeepVM (arXiv 2403.05861): which spot and on-demand machines do most for an hourly budget, and how to do better."""

from planner.models.deepvm.clusters import Clusters, enumerate_clusters, ranked
from planner.models.deepvm.inputs import (
    DEEPVM_ARCHITECTURES,
    EVERY_ARCHITECTURE,
    Architecture,
    Cluster,
    CpuType,
    GpuType,
    Limits,
    Quota,
    saturation_nodes,
)
from planner.models.deepvm.policies import cost_first, performance_first, recommend
from planner.models.deepvm.scaling import Scaling, fit_scaling
from planner.models.deepvm.scoring import CheckpointCosts, MeasuredScaling, Scored, Scores, score

__all__ = [
    "DEEPVM_ARCHITECTURES",
    "EVERY_ARCHITECTURE",
    "Architecture",
    "CheckpointCosts",
    "Cluster",
    "Clusters",
    "CpuType",
    "GpuType",
    "Limits",
    "MeasuredScaling",
    "Quota",
    "Scaling",
    "Scored",
    "Scores",
    "cost_first",
    "enumerate_clusters",
    "fit_scaling",
    "performance_first",
    "ranked",
    "recommend",
    "saturation_nodes",
    "score",
]
