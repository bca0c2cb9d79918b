"""Published step times of sharded training, as the columns that the product's form takes.

Any CSV file in `llm-tables/` below --data with these columns is a family of its own; `llm-foundry-tput/` is one more.
What a table does not say (vocabulary, links, how gradients are kept) is said here once for each kind of model,
framework and GPU, from data sheets and the frameworks' own defaults; never from the measured times.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.models.sharded_step_time.job_layout import SUSTAINED
from planner.models.sharded_step_time.layout import Hardware, Layout

Row = dict[str, str]
NEEDED = ("params", "layers", "hidden", "heads", "seq_len", "gpus", "gpu_type", "tp", "pp", "micro_batch")

# Data sheets: dense half-precision TFLOPS, those of fp8 and fp4, GB/s of memory and of the link one way, network
# Gbit/s a GPU, GPUs in one domain. Hopper's sheet is for more power than sustained products are given.
_GPUS: dict[str, tuple[float, float, float, float, float, float, int]] = {
    "V100": (125, 125, 125, 900, 150, 12.5, 8),
    "A100-40": (312, 312, 312, 1555, 300, 200, 8),
    "A100": (312, 312, 312, 2039, 300, 200, 8),
    "H100-96": (989, 1979, 1979, 2400, 450, 400, 8),
    "H100": (989, 1979, 1979, 3350, 450, 400, 8),
    "H200": (989, 1979, 1979, 4800, 450, 400, 8),
    "GH200": (989, 1979, 1979, 4000, 450, 400, 1),
    "B200": (2250, 4500, 9000, 8000, 900, 400, 8),
    "B300": (2250, 4500, 13500, 8000, 900, 800, 8),
    "GB200": (2500, 5000, 10000, 8000, 900, 400, 72),
    "GB300": (2500, 5000, 15000, 8000, 900, 800, 72),
    "L40S": (362, 733, 733, 864, 13.4, 25, 8),
    "A10G": (70, 70, 70, 600, 13.4, 12.5, 8),
    "L4": (121, 242, 242, 300, 13.4, 12.5, 8),
    "RTX4090": (165, 330, 330, 1008, 13.4, 12.5, 8),
}
_SUSTAINED = SUSTAINED["H100"]
_VOCABULARIES = (
    ("llama-like", 131072),
    ("llama3", 128256),
    ("llama2", 32000),
    ("llama", 32000),
    ("mistral", 32000),
    ("qwen", 151936),
    ("gemma", 256000),
    ("nemotron", 256000),
    ("mpt", 50432),
    ("gpt", 51200),
)
_MPT_SHAPES = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One family: what was trained how, on what, and the seconds of a step."""

    family: str
    layout: Layout
    hardware: Hardware
    log_step: Floats
    model: tuple[str, ...]
    gpu_type: tuple[str, ...]
    adapters: Flags  # LoRA
    global_batch: Ints
    left_out: int  # rows that say too little, or mix experts

    def __len__(self) -> int:
        return len(self.log_step)

    def at(self, rows: Ints | Flags) -> Table:
        chosen = np.arange(len(self))[rows]
        return Table(
            family=self.family,
            layout=self.layout.at(rows),
            hardware=self.hardware.at(rows),
            log_step=self.log_step[rows],
            model=tuple(self.model[row] for row in chosen),
            gpu_type=tuple(self.gpu_type[row] for row in chosen),
            adapters=self.adapters[rows],
            global_batch=self.global_batch[rows],
            left_out=self.left_out,
        )

    def keys(self, *names: str) -> list[tuple[Any, ...]]:
        """Of each row, for grouping."""
        columns = [self._column(name) for name in names]
        return list(zip(*columns, strict=True))

    def _column(self, name: str) -> list[Any]:
        if name in ("model", "gpu_type"):
            return list(getattr(self, name))
        if name == "global_batch":
            return [int(value) for value in self.global_batch]
        if name == "gpus":
            return [float(value) for value in np.broadcast_to(self.layout.gpus, len(self))]
        source = self.layout if name in {field.name for field in fields(Layout)} else self.hardware
        return [float(value) for value in np.broadcast_to(getattr(source, name), len(self))]


def load_tables(data: Path) -> list[Table]:
    """Every family with at least four dense rows whose shape and time are known, by name."""
    foundry = sorted((data / "llm-foundry-tput").glob("*.csv"))
    found = [_table("foundry" if len(foundry) == 1 else file.stem, map(_from_foundry, _rows(file))) for file in foundry]
    for file in sorted((data / "llm-tables").glob("*.csv")):
        if "memory" in file.stem:  # those time texts of varying length, or do not say of how many GPUs
            continue
        rows = _rows(file)
        if rows and all(name in rows[0] for name in NEEDED):
            found.append(_table(_family(file.stem), rows))
    return [table for table in found if len(table) >= 4]


def _rows(file: Path) -> list[Row]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _family(stem: str) -> str:
    return stem.split("_")[0]


def _from_foundry(row: Row) -> Row:
    """llm-foundry's columns under the names of the others."""
    layers, width, heads = _MPT_SHAPES.get(row["Model"], ("", "", ""))
    tokens = float(row["Throughput (T/s/GPU)"])
    precision = "fp8" if "fp8" in row["Precision"].lower() else "bf16"
    gpus, batch = row["# GPUs"], row["GlobalBatchSize"]
    # The fixed-size sums of S/s are rounded to whole sequences, tokens are not.
    return {
        "model": f"MPT {row['Model']}",
        "params": row["NumParams"],
        "layers": str(layers),
        "hidden": str(width),
        "heads": str(heads),
        "seq_len": row["SeqLen (T)"],
        "gpus": gpus,
        "gpu_type": row["GPU"],
        "sharding": "FSDP" if row["Sharding Strategy"] == "FULL_SHARD" else row["Sharding Strategy"],
        "tp": "1",
        "pp": "1",
        "cp": "1",
        "dp": gpus,
        "micro_batch": row["MicroBatchSize"],
        "global_batch": batch,
        "activation_checkpointing": "full" if row["Activation Checkpointing"] == "True" else "none",
        "precision": precision,
        "compile": "",
        "method": "pretrain",
        "tokens_per_s_per_gpu": str(tokens),
        "source": "llm-foundry",
        "note": f"{row['section']}; MP mode {row['MP Mode']}",
    }


def _table(family: str, rows: Iterable[Row]) -> Table:
    every = list(rows)
    kept = [row for row in every if _usable(row)]
    columns = [_columns(row) for row in kept]
    return Table(
        family=family,
        layout=Layout(**_stacked([layout for layout, _ in columns], [field.name for field in fields(Layout)])),
        hardware=Hardware(**_stacked([machine for _, machine in columns], [field.name for field in fields(Hardware)])),
        log_step=np.log(np.array([_step_seconds(row) for row in kept])),
        model=tuple(row["model"] for row in kept),
        gpu_type=tuple(row["gpu_type"] for row in kept),
        adapters=np.array(["lora" in row.get("method", "").lower() for row in kept], dtype=bool),
        global_batch=np.array([_global_batch(row) for row in kept], dtype=np.int64),
        left_out=len(every) - len(kept),
    )


def _stacked(rows: Sequence[dict[str, float]], names: Sequence[str]) -> dict[str, Floats]:
    return {name: np.array([row[name] for row in rows], dtype=float) for name in names}


def _usable(row: Row) -> bool:
    if not all(
        _number(row, name) for name in ("params", "layers", "hidden", "heads", "seq_len", "gpus", "micro_batch")
    ):
        return False
    if (_number(row, "ep") or 1) > 1 or _gpu_name(row["gpu_type"]) is None:
        return False
    return _step_seconds(row) is not None


def _number(row: Row, name: str) -> float | None:
    text = (row.get(name) or "").strip()
    return float(text) if re.fullmatch(r"[0-9.]+(e[+-]?[0-9]+)?", text) else None


def _global_batch(row: Row) -> int:
    given = _number(row, "global_batch")
    return int(given) if given else int(_degree(row, "micro_batch") * _data_parallel(row))


def _degree(row: Row, name: str) -> float:
    return _number(row, name) or 1.0


def _data_parallel(row: Row) -> float:
    given = _number(row, "dp")
    return given or _degree(row, "gpus") / (_degree(row, "tp") * _degree(row, "pp") * _degree(row, "cp"))


def _step_seconds(row: Row) -> float | None:
    """As given, from tokens per second, or from the share of the peak that useful work takes."""
    if given := _number(row, "step_s"):
        return given
    tokens = _global_batch(row) * _degree(row, "seq_len")
    if rate := _number(row, "tokens_per_s_per_gpu"):
        return tokens / (rate * _degree(row, "gpus"))
    if mfu := _number(row, "mfu"):
        sheet = _GPUS[_gpu_name(row["gpu_type"]) or "A100"][0] * 1e12
        attention = 12.0 * _degree(row, "layers") * _degree(row, "hidden") * _degree(row, "seq_len")
        flops = tokens * (6.0 * _degree(row, "params") + attention)
        return flops / (mfu / 100.0 * sheet * _degree(row, "gpus"))
    return None


def _columns(row: Row) -> tuple[dict[str, float], dict[str, float]]:
    return {**_model(row), **_spread(row), **_software(row)}, _machine(row)


def _model(row: Row) -> dict[str, float]:
    vocabulary, width = _vocabulary(row["model"]), _degree(row, "hidden")
    # Small models, and all of the GPT line, tie the output layer to the embedding.
    tied = width <= 3072 or any(name in row["model"].lower() for name in ("gpt", "mpt", "opt", "gemma"))
    copies = 1.0 if tied else 2.0
    return {
        "layers": _degree(row, "layers"),
        "width": width,
        "heads": _degree(row, "heads"),
        "sequence_length": _degree(row, "seq_len"),
        "vocabulary": vocabulary,
        "embedding_copies": copies,
        "block_parameters": (_degree(row, "params") - copies * vocabulary * width) / _degree(row, "layers"),
    }


def _vocabulary(model: str) -> float:
    name = re.sub(r"[\s_]", "", model.lower())
    return float(next((words for key, words in _VOCABULARIES if name.startswith(key)), 50304))


def _spread(row: Row) -> dict[str, float]:
    tensor, data = _degree(row, "tp"), _data_parallel(row)
    context, micro = _degree(row, "cp"), _degree(row, "micro_batch")
    sharding, gradient = (row.get("sharding") or "").lower(), _gradient_bytes(row)
    copies = data * context  # context parallel GPUs share samples, not weights
    domain = _GPUS[_gpu_name(row["gpu_type"]) or "A100"][6]
    hybrid, whole = "hsdp" in sharding, "fsdp" in sharding or "zero-3" in sharding or "full" in sharding
    grad_only = "zero-2" in sharding or "grad_op" in sharding
    optimizer_only = any(name in sharding for name in ("zero-1", "dist-opt", "distributed"))
    shards = max(min(domain // tensor, copies), 1.0) if hybrid else copies
    virtual = re.search(r"VP (\d+)", row.get("note") or "")
    return {
        "tensor": tensor,
        "pipeline": _degree(row, "pp"),
        "virtual_stages": float(virtual.group(1)) if virtual else 1.0,
        "context": context,
        "data": data,
        "shards": shards,
        "gathered_bytes": 4.0 + gradient if hybrid or whole else 2.0 + gradient if grad_only else 0.0,
        "synchronised_bytes": 0.0
        if hybrid or whole or grad_only
        else gradient + 2.0
        if optimizer_only
        else 2.0 * gradient,
        "replica_bytes": 2.0 * gradient if hybrid else 0.0,
        "update_shards": shards if hybrid or whole or grad_only or optimizer_only else 1.0,
        "micro_batch": micro,
        "accumulation": max(round(_global_batch(row) / (data * micro)), 1.0),
    }


def _gradient_bytes(row: Row) -> float:
    """As the frameworks send them by default: these in fp32, the others as they computed them."""
    named = f"{row.get('source', '')} {row.get('note', '')}".lower()
    whole = ("megatron-bridge", "nemo", "nanotron", "torchtitan", "mp mode default")
    return 4.0 if any(name in named for name in whole) else 2.0


def _software(row: Row) -> dict[str, float]:
    again, named = row.get("activation_checkpointing") or "", f"{row.get('source', '')} {row.get('note', '')}".lower()
    adapters = "lora" in (row.get("method") or "").lower()
    # Transformer Engine, with which Megatron-Bridge trains: fused kernels, attention written for the GPU, tensor
    # parallel communication behind products.
    engine = "megatron-bridge" in named or "nemo" in named
    return {
        "recomputed": 1.0 if again.startswith("full") else 0.4 if again.startswith("selective") else 0.0,
        "passes": 2.0 if adapters else 3.0,
        "trained_share": 0.004 if adapters else 1.0,
        "dequantised": 0.0,
        "flash": 0.0 if "megatron-deepspeed" in named else 1.0,
        "attention_power": 0.8 if engine else 0.5,
        "split_sequence": 0.0 if "megatron-deepspeed" in named else 1.0,
        "fused": 1.0 if engine or (row.get("compile") or "").lower() in ("y", "yes", "true") else 0.0,
        "exposed_tensor": 0.5 if engine or "asynctp" in named.replace(" ", "") else 1.0,
    }


def _machine(row: Row) -> dict[str, float]:
    name = _gpu_name(row["gpu_type"]) or "A100"
    half, eight, four, memory, link, network, domain = _GPUS[name]
    precision = (row.get("precision") or "").lower()
    power = _SUSTAINED * _less_power(row["gpu_type"]) if name.startswith(("H1", "H2", "GH")) else 1.0
    # Row-wise scales cost what the units gain.
    low = half if "rowwise" in precision else four if "fp4" in precision else eight if "fp8" in precision else half
    return {
        "half_flops": half * 1e12 * power,
        "matmul_flops": low * 1e12 * power,
        "memory_bytes_per_second": memory * 1e9,
        "link_bytes_per_second": link * 1e9,
        "network_bytes_per_second": _network_gbps(row, network) / 8 * 1e9,
        "domain": float(domain),
    }


def _less_power(gpu_type: str) -> float:
    """Of a part that is sold with fewer watts than the sheet's 700: power goes with the cube of the clock."""
    watts = re.search(r"(\d{3})W", gpu_type)
    return min(float(watts.group(1)) / 700.0, 1.0) ** (1 / 3) if watts else 1.0


def _network_gbps(row: Row, usual: float) -> float:
    """Per GPU; tables say it per node of eight, if at all."""
    said = re.search(r"(\d+) ?Gb(?:/s|ps)", f"{row['gpu_type']} {row.get('note') or ''}")
    return float(said.group(1)) / 8 if said else usual


def _gpu_name(text: str) -> str | None:
    """The longest known name that the text begins with."""
    plain = re.sub(r"[^A-Z0-9]", "", text.upper()).removeprefix("NVIDIA")
    plain = plain.replace("SXM4", "").replace("SXM5", "").replace("SXM", "")
    known = sorted(_GPUS, key=len, reverse=True)
    return next((name for name in known if plain.startswith(name.replace("-", ""))), None)
