"""Published peaks of training, row by row, as shapes and strategies of `scav memory`.

Any CSV with the columns of `llm-tables` is taken. A row's shape is that of its model's name, else its columns'. Rows of
what the model does not know (offloading, an optimizer in the backward pass, adapters other than LoRA, GPTQ, unpacked
texts of torchtune) are left out. For three rows of torchtune that was noticed only when their errors were seen: full
training of 8B on an A6000, which cannot hold AdamW's state, and LoRA and QLoRA after the flag for offloading.

Shapes were typed as the models were published and not compared with each config.json; nanotron's are solved from its
counts of parameters, and OpenBuddy's vocabulary is a guess.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.inputs import TransformerShape
from planner.models.sharded_memory.strategy import Strategy

GIB = 2.0**30
# name: layers, width, heads, key-value heads, feed-forward width, vocabulary, gated, tied
SHAPES: dict[str, tuple[int, int, int, int, int, int, bool, bool]] = {
    "phi-1.5": (24, 2048, 32, 32, 8192, 51200, False, False),
    "stablelm alpha 3 b": (16, 4096, 32, 32, 16384, 50688, False, False),
    "llama 2 7 b": (32, 4096, 32, 32, 11008, 32000, True, False),
    "llama 2 13 b": (40, 5120, 40, 40, 13824, 32000, True, False),
    "falcon 40 b": (60, 8192, 128, 8, 32768, 65024, False, False),
    "falcon 7 b": (32, 4544, 71, 1, 18176, 65024, False, False),
    "llama 3.1 405b": (126, 16384, 128, 8, 53248, 128256, True, False),
    "llama 3.1 70b": (80, 8192, 64, 8, 28672, 128256, True, False),
    "llama 3.1 8b": (32, 4096, 32, 8, 14336, 128256, True, False),
    "llama 3 8b": (32, 4096, 32, 8, 14336, 128256, True, False),
    "llama 3.2 3b": (28, 3072, 24, 8, 8192, 128256, True, True),
    "llama 3.2 1b": (16, 2048, 32, 8, 8192, 128256, True, True),
    "qwen-1_8b": (24, 2048, 16, 16, 5504, 151936, True, False),
    "qwen-7b": (32, 4096, 32, 32, 11008, 151936, True, False),
    "qwen-14b": (40, 5120, 40, 40, 13696, 152064, True, False),
    "qwen-72b": (80, 8192, 64, 64, 24576, 152064, True, False),
    "chatglm3-6b": (28, 4096, 32, 2, 13696, 65024, True, False),
    "yi-6b": (32, 4096, 32, 4, 11008, 64000, True, False),
    "yi-34b": (60, 7168, 56, 8, 20480, 64000, True, False),
    "openbuddy-zephyr-7b": (32, 4096, 32, 8, 14336, 36608, True, False),
    "baichuan2-7b": (32, 4096, 32, 32, 11008, 125696, True, False),
    "baichuan2-13b": (40, 5120, 40, 40, 13696, 125696, True, False),
    # nanotron's scaling benchmark: the widths and the vocabulary that give the published parameters exactly.
    "llama-like 1.34b": (16, 2048, 32, 32, 8192, 131072, True, True),
    "llama-like 3.57b": (28, 3072, 32, 32, 8192, 131072, True, True),
    "llama-like 8.86b": (32, 4096, 32, 32, 14336, 131072, True, False),
    "llama-like 80.0b": (80, 8192, 64, 64, 28672, 131072, True, False),
}
# MosaicML's MPT: layers, width, heads of llm-foundry's configurations; feed-forward 4 wide, vocabulary 50368, tied.
MPT = {
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
class Row:
    """One measured run; `bytes_peak` is None where it ran out of memory."""

    set: str
    label: str
    shape: TransformerShape
    strategy: Strategy
    kind: str  # allocated, reserved, reserved_varying
    memory_gib: float
    bytes_peak: float | None


def load_rows(folder: Path) -> tuple[list[Row], int]:
    """Of every table below `folder` that has peaks, each configuration once; and how many were left out."""
    rows, left_out = [], 0
    for file in sorted(folder.rglob("*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            if not {"peak_mem_gib", "model", "micro_batch"} <= set(reader.fieldnames or ()):
                continue
            for cells in reader:
                row = _row(cells)
                left_out += row is None and bool(cells["peak_mem_gib"])
                rows += [row] if row else []
    once = {(row.set, row.label, row.shape, row.strategy, row.bytes_peak): row for row in rows}
    return list(once.values()), left_out


def load_micro_batches(folder: Path) -> Iterator[Row]:
    """llm-foundry publishes no peaks, but what ran."""
    for file in sorted(folder.rglob("mpt_training_throughput.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            for cells in csv.DictReader(lines):
                yield _foundry(cells)


def _row(cells: Mapping[str, str]) -> Row | None:
    if cells["peak_mem_gib"] in ("", "N/A"):
        return None
    family = next((name for name in _FAMILIES if name in cells["source"].lower()), None)
    found = _shape(cells)
    if found is None:
        return None
    strategy = _FAMILIES[family](cells) if family else _plain(cells)
    if strategy is None:
        return None
    loss = {"nanotron": "eager", "litgpt": "half", "ms-swift": "hf", "torchtune": _torchtune_loss(cells)}
    attention = "eager" if family == "ms-swift" and not _has_flash(cells) else "flash"
    shape = found[1].model_copy(update={"loss": loss.get(family or "", "eager"), "attention": attention})
    kind = {"nanotron": "reserved", "ms-swift": "reserved_varying"}.get(family or "", "allocated")
    unit = 1e9 if family == "litgpt" else GIB
    peaks = [float(part) for part in re.findall(r"\d+\.?\d*", cells["peak_mem_gib"])]
    return Row(
        set=family or cells["source"].split()[0].lower(),
        label=f"{cells['model']} {cells['gpu_type']} {cells['method']} {cells['precision']} {cells['micro_batch']}",
        shape=shape,
        strategy=strategy,
        kind=kind,
        memory_gib=float(re.findall(r"(\d+)GB", cells["gpu_type"] + " 80GB")[0]),
        bytes_peak=max(peaks) * unit if peaks else None,
    )


def _shape(cells: Mapping[str, str]) -> tuple[str, TransformerShape] | None:
    known = next((name for name in SHAPES if cells["model"].lower().startswith(name)), None)
    length = int(cells["seq_len"])
    if known:
        layers, width, heads, kv, hidden, words, gated, tied = SHAPES[known]
    elif cells["layers"] and cells["hidden"] and cells["heads"] and cells["params"]:
        layers, width, heads = int(cells["layers"]), int(cells["hidden"]), int(cells["heads"])
        kv, words, gated, tied = heads, 128256, True, False
        hidden = round(((float(cells["params"]) - 2 * words * width) / layers - 4 * width**2) / (3 * width))
        if hidden < 1:
            return None
    else:
        return None
    shape = TransformerShape(
        layers=layers,
        width=width,
        heads=heads,
        key_value_heads=kv,
        feed_forward_width=hidden,
        vocabulary=words,
        sequence_length=length,
        tied_embeddings=tied,
        gated=gated,
    )
    return known or cells["model"], shape


def _nanotron(cells: Mapping[str, str]) -> Strategy:
    t, p, d, m = (int(cells[key]) for key in ("tp", "pp", "dp", "micro_batch"))
    return Strategy(
        sharding="zero1" if cells["sharding"] == "ZeRO-1" else "ddp",
        gpus=t * p * d,
        gpus_per_node=8,
        tensor_parallel=t,
        pipeline=p,
        states="master",
        micro_batch=m,
        accumulation=max(int(cells["global_batch"]) // (d * m), 1),
    )


def _litgpt(cells: Mapping[str, str]) -> Strategy | None:
    if "lora" not in cells["method"].lower() and "full" not in cells["method"].lower():
        return None  # its own adapters
    gpus = int(cells["gpus"])
    lora = "full" if "full" in cells["method"].lower() else "lora"
    return Strategy(
        sharding="fsdp" if gpus > 1 else "ddp",
        gpus=gpus,
        recompute="full" if cells["activation_checkpointing"] == "full" else "none",
        training="qlora" if "nf4" in cells["precision"] else lora,  # type: ignore[arg-type]
        double_quantized="nf4-dq" in cells["precision"],
        states="pure",
        flat_parameters=True,  # of 2023; adapters share a block's with frozen weights
        micro_batch=int(cells["micro_batch"]),
        accumulation=max(int(cells["global_batch"]) // (gpus * int(cells["micro_batch"])), 1),
        load="full",
    )


# Its flags are cumulative: from "offloading" on every row has it, LoRA and QLoRA among them.
_TORCHTUNE_UNKNOWN = ("baseline", "into backward", "offloading", "8-bit", "cumulative: lora", "cumulative: qlora")


def _torchtune(cells: Mapping[str, str]) -> Strategy | None:
    method, gpus = cells["method"].lower(), int(cells["gpus"])
    full = "full" in method or "cumulative: +" in method
    if any(word in method for word in _TORCHTUNE_UNKNOWN):
        return None
    if "full finetune" in method:
        return None  # on one GPU an 8-bit paged optimizer (the recipe's default), 70B offloaded to the host
    recompute = "none" if method.endswith(("packed dataset", "compile", "cross entropy")) else "full"
    return Strategy(
        sharding="fsdp" if gpus > 1 else "ddp",
        gpus=gpus,
        recompute=recompute,  # type: ignore[arg-type]
        training="full" if full else "qlora" if "qlora" in method else "lora",
        lora_dropout=False,
        fused_optimizer=True,  # in its recipes
        compiled=cells["compile"] == "Y" or ("cumulative" in method and not method.endswith("packed dataset")),
        states="pure",
        micro_batch=int(cells["micro_batch"]),
    )


def _torchtune_loss(cells: Mapping[str, str]) -> str:
    return "eager" if cells["method"].endswith(("Packed Dataset", "Compile")) else "chunked"


def _has_flash(cells: Mapping[str, str]) -> bool:
    """ms-swift's table switches it on and off for Qwen. That the other models had none is inferred from their peaks."""
    return cells["model"].startswith("qwen") and '"Use Flash Attn": "\\u2718"' not in cells["note"]


def _ms_swift(cells: Mapping[str, str]) -> Strategy | None:
    if "gptq" in cells["note"]:
        return None
    gpus = int(cells["gpus"])
    return Strategy(
        gpus=gpus,
        pipeline=gpus,  # a naive device map: stages, one micro-batch at a time
        recompute="none" if "u2718" in cells["activation_checkpointing"] else "full",
        training="full" if cells["method"] == "full" else "qlora" if "bnb" in cells["note"] else "lora",
        states="pure",
        micro_batch=int(cells["micro_batch"]),
    )


def _plain(cells: Mapping[str, str]) -> Strategy | None:
    """Of tables that say everything in their columns."""
    sharding = cells["sharding"].lower()
    names = {
        "zero-0": "ddp",
        "ddp": "ddp",
        "none": "ddp",
        "": "ddp",
        "zero-1": "zero1",
        "zero-2": "zero2",
        "hsdp": "hsdp",
    }
    found = "fsdp" if sharding.startswith("fsdp") else names.get(sharding)
    recompute = {"full": "full", "none": "none", "selective": "selective", "": "none"}.get(
        cells["activation_checkpointing"]
    )
    t, p, gpus = int(cells["tp"] or 1), int(cells["pp"] or 1), int(cells["gpus"])
    if found is None or recompute not in ("none", "selective", "full") or gpus % (t * p) or (cells["cp"] or "1") != "1":
        return None
    method, m = cells["method"].lower(), int(cells["micro_batch"])
    batch = int(float(cells["global_batch"] or 0)) * t * p
    options: dict[str, Any] = {"sharding": found, "recompute": recompute}
    return Strategy(
        **options,
        gpus=gpus,
        tensor_parallel=t,
        pipeline=p,
        training="qlora" if "qlora" in method else "lora" if "lora" in method else "full",
        states="pure" if "true" in cells["precision"] else "autocast",
        compiled=cells["compile"].upper().startswith("Y"),
        micro_batch=m,
        accumulation=max(batch // (gpus * m), 1),
    )


_FAMILIES = {"nanotron": _nanotron, "litgpt": _litgpt, "torchtune": _torchtune, "ms-swift": _ms_swift}


def _foundry(cells: Mapping[str, str]) -> Row:
    layers, width, heads = MPT[cells["Model"].lower()]
    pure = cells["MP Mode"] == "PURE"
    sharding = {"FULL_SHARD": "fsdp", "SHARD_GRAD_OP": "zero2"}.get(cells["Sharding Strategy"], "ddp")
    options: dict[str, Any] = {"sharding": sharding, "states": "pure" if pure else "autocast"}
    return Row(
        set="llm-foundry",
        label=f"{cells['Model']} {cells['SeqLen (T)']} {cells['# GPUs']} {cells['GPU']}",
        shape=TransformerShape(
            layers=layers,
            width=width,
            heads=heads,
            feed_forward_width=4 * width,
            vocabulary=50368,
            sequence_length=int(cells["SeqLen (T)"]),
            tied_embeddings=True,
            gated=False,
            loss="fused",  # llm-foundry's default
        ),
        strategy=Strategy(
            **options,
            gpus=int(cells["# GPUs"]),
            recompute="full" if cells["Activation Checkpointing"] == "True" else "none",
            micro_batch=int(cells["MicroBatchSize"]),
            accumulation=int(cells["GradAccum"]),
        ),
        kind="allocated",
        memory_gib=40.0 if "40gb" in cells["GPU"] else 80.0,
        bytes_peak=None,
    )
