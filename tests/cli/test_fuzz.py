"""Ten thousand broken job files, and measurements beside them: an answer or a ScavError, never a traceback.

Seeded, so that a failure is the same everywhere. Every file is parsed. Planning takes tens of milliseconds, so of
the files that parse a share is planned and rendered as well (PLANNED_SHARE).
"""

from __future__ import annotations

import random
import re
import string
import warnings
from itertools import permutations
from pathlib import Path

import pytest

from planner.errors import NoFeasiblePlan, ScavError
from planner.inputs.job.parse import JobFile
from planner.inputs.measurements import MeasurementFile, parse_measurements, usable
from planner.inputs.plan_inputs import Hashed, Snapshot, plan_inputs
from planner.outside import assets, store
from planner.outside.render import render_workspace
from planner.plan.build import make_plan
from planner.plan.review.page import page_text, plan_page

pytestmark = pytest.mark.slow

FILES = 10_000
BLOCKS = 10
PLANNED_SHARE = 0.25
MEASUREMENT_FILES = 300

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EVERY_KEY = """\
name: every-key
workload:
  dataset_samples: 1_281_167
  flops_per_sample: 24.6 GFLOP
  parameters: 25.6M
  gradient_bytes: 102MB
  activation_bytes_per_sample: 60MB
  checkpoint_bytes: 98MiB
  global_batch: 256..1024
  precision: tf32
  optimizer: lion
  target: {samples: 115M, reference_batch: 256}
  convergence:
    noise_scale: 4000
    runs: [{batch: 1024, epochs: 92}, {batch: 8192, samples: 140M}]
constraints:
  deadline: 1d12h
  budget: $400
  confidence: 0.9
  regions: [us-east-1, eu-west-1]
  instance_types: ["g5.*", "A100:80GB:1..8"]
  nodes: 1..2
  spot: auto
  quotas: {on_demand: {g: 192, p: 0}, spot: {g: 96}}
objective: knee
network: {vpc: vpc-0123456789abcdef0, subnets: [subnet-0123456789abcdef0]}
run:
  id: a1
  ami: ami-0123456789abcdef0
  command: [train.py, --amp, true]
  checkpoint_bucket: my-bucket
  budget_emails: [someone@example.com]
"""
WORDS = [
    *("0", "-1", "1e999", "-1e999", "nan", ".inf", "1e-300", "1e30", "1e29", "5e-324", "9" * 40, "9" * 5000),
    *("0x10", "1:30", "1..", "..", "1..1e9", "16..1", "16777216", "1..16777216", "1..1024", "1e-9", "1_0", "١٢"),
    *("null", "~", "true", "no", "''", '""', '"\\uD800"', '"\\U00110000"', '"\\x00"', "[]", "{}", "[[[]]]", "[1, 2]"),
    *("{a: {b: [c]}}", "*alias", "&a b", "!!python/object:os.system x", "!!binary aGk=", "<<", "? [a]\n: b", "|", ">-"),
    *(
        "\t",
        "\x85",
        "\u2028",
        "\ufeff",
        "${path}",
        '"; ${path}',
        "%{ if true }",
        "\\",
        "'",
        '"',
        "#",
        "---",
        "...",
        "`",
    ),
    *("24h", "1s", "1w", "1e29h", "$0.01", "$1e29", "98MiB", "1PB", "1e12 GFLOP", "A100:80GB:1..8", "*", "?", "[z-a]"),
    *(
        "[",
        "p5.*",
        "all",
        "us-east-1",
        "mars-1",
        "never",
        "always",
        "knee",
        "time",
        "fp8",
        "fp32",
        "sgd",
        "1e9",
        "1e-6",
    ),
]
EXTREMES = {
    "dataset_samples": ("1", "1e30", "1e6"),
    "flops_per_sample": ("1e-9", "1", "1e30", "1 PFLOP"),
    "parameters": ("1", "1e30", "1e9", "100G"),
    "gradient_bytes": ("1e-9", "1e30", "1GB"),
    "activation_bytes_per_sample": ("1e-9", "1e30", "1", "30GB"),
    "checkpoint_bytes": ("0", "1e-9", "1e30", "1TB"),
    "global_batch": ("1", "1..16777216", "16777216", "7..9", "1009"),
    "precision": ("fp32", "tf32", "fp16", "bf16", "fp8"),
    "optimizer": ("sgd", "momentum", "lion", "adam"),
    "samples": ("1", "1e30", "1e-9", "1e-300"),
    "epochs": ("1e-300", "5e-324", "1e9", "0.001"),
    "reference_batch": ("1", "16777216"),
    "noise_scale": ("1e-300", "1e30", "1", "1e-9"),
    "batch": ("1", "16777216"),
    "deadline": ("1e-300h", "1s", "1e30h", "1w"),
    "budget": ("$1e-300", "$0.01", "$1e30", "$100000"),
    "confidence": ("0.5", "0.999"),
    "regions": ("[all]", "[us-east-1, us-east-1]", "[ap-northeast-1]"),
    "instance_types": ('["g4dn.*"]', "[V100]", "[p6-b200.48xlarge]", "[2..4]", "[24GB]"),
    "nodes": ("1", "2", "1024", "1000..1002", "3..5"),
    "spot": ("never", "always"),
    "on_demand": ("{g: 0, p: 0}", "{g: 9223372036854775807}", "{g: 99999999999999999999}"),
    "objective": ("cost", "time", "knee"),
}
MEASUREMENT_WORDS = ('"p4d.24xlarge"', '"x9.large"', '"\\ud800"', '"fp16"', "1e30", "1e300", "5e-324", "NaN", "10" * 20)
TOKEN = re.compile(r"[\w.$*-]+|[^\w\s]")
VALUE = re.compile(r"(?<=[:\[,{] )[^\[\]{},\n#]+")
KEYS = sorted(set(re.findall(r"(\w+):", EVERY_KEY)))


@pytest.fixture(scope="module")
def catalog():
    return store.load_catalog(assets.embedded_catalog(), beside=Path())


@pytest.fixture(scope="module")
def sources() -> list[str]:
    """Narrowed where the search is wide; without comments, which only slow the reading."""
    texts = [(EXAMPLES / name / "scav.yaml").read_text(encoding="utf-8") for name in sorted(_example_names())]
    texts = [re.sub(r"(?m)[ \t]+#.*$|^#.*\n", "", text) for text in (*texts, assets.load_starter_job())]
    narrow = [re.sub(r"nodes: .*", "nodes: 1..2", text) for text in texts]
    return [text.replace('["*"]', '["g5.*"]').replace("us-west-2", "eu-west-1") for text in narrow] + [EVERY_KEY]


def _example_names() -> list[str]:
    return [path.parent.name for path in EXAMPLES.glob("*/scav.yaml")]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_fuzzed_job_files_end_in_a_plan_or_in_one_sentence(block, sources, catalog, tmp_path):
    chance = random.Random(f"job files, block {block}")  # noqa: S311 (repeatable on purpose)
    path = tmp_path / "scav.yaml"
    parsed = 0
    for number in range(FILES // BLOCKS):
        content = fuzzed(chance, sources)
        path.write_bytes(content)
        planned = chance.random() < PLANNED_SHARE
        try:
            job_file = store.load_job(path, {})
            parsed += 1
            if planned:
                plan_and_render(job_file, MeasurementFile(()), catalog)
        except ScavError as error:
            if not reads_well(error):
                pytest.fail(f"file {number} of block {block}: {error!r}\n{content!r}")
        except BaseException as error:
            pytest.fail(f"file {number} of block {block}: {error!r}\n{content!r}")
    assert FILES // BLOCKS * 0.05 < parsed < FILES // BLOCKS * 0.9, "fuzzing that always or never breaks a file"


def test_fuzzed_measurements_end_in_a_plan_or_in_one_sentence(catalog, sources, tmp_path):
    chance = random.Random("measurements")  # noqa: S311 (repeatable on purpose)
    path = tmp_path / "scav.yaml"
    text = re.sub(r"(?m)^ *(gradient|checkpoint)_bytes: .*\n", "", sources[-1].replace("tf32", "bf16"))
    path.write_text(text, encoding="utf-8")
    job_file = store.load_job(path, {})
    used = 0
    for number in range(MEASUREMENT_FILES):
        text = "".join(measurement_line(chance) for _ in range(chance.randint(1, 6)))
        try:
            found = parse_measurements(text, file="measurements.jsonl")
            plan_and_render(job_file, found, catalog)
            used += bool(usable(found.rows, catalog[0], "bf16").rows)
        except ScavError:
            pass
        except BaseException as error:
            pytest.fail(f"file {number}: {error!r}\n{text}")
    assert used > MEASUREMENT_FILES * 0.2


def reads_well(error: ScavError) -> bool:
    """One line, or the few lines of the nearest misses; never an empty reason."""
    text = str(error)
    few = 3 if isinstance(error, NoFeasiblePlan) else 1
    return len(text) < 1500 and len(text.splitlines()) <= few and not text.rstrip().endswith(":")


def plan_and_render(job_file: JobFile, measurements: MeasurementFile, catalog: Snapshot) -> None:
    digest = store.sha256(job_file.job.model_dump_json())
    nothing = {"history": Hashed(()), "recordings": Hashed({})}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy's overflow would show to a user as a stray line
        plan = make_plan(plan_inputs(job_file, catalog, Hashed(measurements), **nothing, job_sha256=digest))
    files = render_workspace(plan, templates={}, module={})
    assert all(text.encode() for text in files.values())
    assert page_text(plan_page(plan))


def fuzzed(chance: random.Random, sources: list[str]) -> bytes:
    if chance.random() < 0.1:
        return structured(chance).encode("utf-8", "surrogatepass")
    text = chance.choice(sources)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        text = chance.choice(MUTATIONS)(chance, text)
    content = text.encode("utf-8", "surrogatepass")
    return flipped(chance, content) if chance.random() < 0.1 else content


def flipped(chance: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def replaced_value(chance: random.Random, text: str) -> str:
    found = list(VALUE.finditer(text))
    if not found:
        return text
    spot = chance.choice(found)
    return text[: spot.start()] + chance.choice(WORDS) + text[spot.end() :]


def scaled_number(chance: random.Random, text: str) -> str:
    found = list(re.finditer(r"\d[\d.]*", text))
    if not found:
        return text
    spot = chance.choice(found)
    digits = chance.choice(("0", "1", "2", "7", "64", "1e3", "1e6", "1e12", "1e20", "1e29", "1e-3", "1e-9", "1e-20"))
    return text[: spot.start()] + digits + text[spot.end() :]


def extreme_value(chance: random.Random, text: str) -> str:
    """Another value that the key allows, however unlikely."""
    key = chance.choice([key for key in EXTREMES if f"{key}: " in text] or [""])
    value = chance.choice(EXTREMES.get(key, ("",)))
    return re.sub(rf"\b{key}: ([\w.$ ]+|\[[^\]]*\])", lambda _: f"{key}: {value}", text, count=1) if key else text


def replaced_token(chance: random.Random, text: str) -> str:
    found = list(TOKEN.finditer(text))
    if not found:
        return text
    spot = chance.choice(found)
    return text[: spot.start()] + chance.choice((*WORDS, *KEYS)) + text[spot.end() :]


def swapped_tokens(chance: random.Random, text: str) -> str:
    found = list(TOKEN.finditer(text))
    if len(found) < 2:
        return text
    first, second = sorted(chance.sample(found, 2), key=lambda spot: spot.start())
    between = text[first.end() : second.start()]
    return text[: first.start()] + second[0] + between + first[0] + text[second.end() :]


def changed_lines(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    here, there = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            del lines[here]
        case 1:
            lines.insert(there, lines[here])
        case 2:
            lines[here], lines[there] = lines[there], lines[here]
        case 3:
            lines[here] = chance.choice(("  ", "\t", "- ", "-", "")) + lines[here].lstrip()
        case _:
            lines = lines[:here]
    return chance.choice(("\n", "\n", "\n", "\r\n", "\r")).join(lines)


def typed_key(chance: random.Random, text: str) -> str:
    found = list(re.finditer(r"\w+(?=:)", text))
    if not found:
        return text
    spot = chance.choice(found)
    key = chance.choice((spot[0][:-1], spot[0].upper(), spot[0] + "s", chance.choice(KEYS), chance.choice(WORDS)))
    return text[: spot.start()] + key + text[spot.end() :]


def inserted_characters(chance: random.Random, text: str) -> str:
    place = chance.randrange(len(text) + 1)
    pool = string.printable + "é\x00\x07\x1b\x85\xa0\u2028\u202e\ufeff\ufffe\U0001f600\U0010ffff"
    return text[:place] + "".join(chance.choices(pool, k=chance.randint(1, 8))) + text[place:]


def nested_junk(chance: random.Random, text: str) -> str:
    depth = chance.choice((3, 50, 400, 2000))
    opening, closing = chance.choice((("[", "]"), ("{a: ", "}"), ("- ", "")))
    place = chance.randrange(len(text) + 1)
    return text[:place] + opening * depth + closing * depth + text[place:]


MUTATIONS = (
    *(replaced_value, replaced_value, scaled_number, scaled_number, scaled_number, replaced_token),
    *(swapped_tokens, changed_lines, typed_key, inserted_characters, nested_junk, *[extreme_value] * 6),
)


def structured(chance: random.Random) -> str:
    """Well-formed YAML of known keys in random shapes."""

    def node(depth: int) -> str:
        kind = chance.random()
        if depth > 4 or kind < 0.4:
            return chance.choice((*WORDS, *KEYS))
        if kind < 0.6:
            return "[" + ", ".join(node(depth + 1) for _ in range(chance.randrange(4))) + "]"
        return "{" + ", ".join(f"{chance.choice(KEYS)}: {node(depth + 1)}" for _ in range(chance.randrange(5))) + "}"

    return "".join(f"{key}: {node(1)}\n" for key in ("name", "workload", "constraints", "objective", "network", "run"))


ALLREDUCES = tuple(
    f'{{"bytes": {size}, "seconds": {seconds}}}'
    for size, seconds in (("65536", "0.001"), ("1e8", "0.2"), ("1e-300", "1e9"), ("1e18", "1e-300"), ("1e18", "1e9"))
)


def measurement_line(chance: random.Random) -> str:
    fields = {
        "instance_type": '"g5.12xlarge"',
        "nodes": chance.choice(("1", "2", "4", "1024", "16777216")),
        "gpus_per_node": "4",
        "gpu_batch": chance.choice(("1", "2", "4", "64", "1024", "16777216")),
        "accumulation_steps": chance.choice(("1", "2", "4", "16777216")),
        "precision": '"bf16"',
        "step_seconds": chance.choice(("0.2", "0.01", "5", "1e-6", "1e9")),
        "exposed_sync_seconds": chance.choice(("null", "0", "0.05", "0.2", "1e-300", "1e9")),
        "startup_seconds": chance.choice(("null", "0", "120", "1e-300", "1e9")),
        "checkpoint_save_seconds": chance.choice(("null", "0", "3", "1e-300", "1e9")),
        "checkpoint_restore_seconds": chance.choice(("null", "0", "3", "1e-300", "1e9")),
        "checkpoint_bytes": chance.choice(("null", "3e8", "1e-300", "1e18")),
        "gradient_bytes": chance.choice(("null", "1e8", "1e-300", "1e18")),
        "parameters": chance.choice(("null", "25600000", "1", "1000000000000000")),
        "peak_memory_bytes": chance.choice(("null", "5e9", "1e-300", "1e18")),
        "out_of_memory_at": chance.choice(("null", "null", "96", "1", "16777216")),
        "window_variation": chance.choice(("null", "0", "0.3", "1e9")),
        "allreduce": chance.choice(("[]", *(f"[{each}, {other}]" for each, other in permutations(ALLREDUCES, 2)))),
        "software": chance.choice(("{}", '{"torch": "2.3"}', '{"torch": "99999.1"}', '{"torch": "2.13.0+cu130"}')),
        "probe_usd": chance.choice(("null", "0", "0.4", "1e9")),
    }
    if chance.random() < 0.1:
        fields[chance.choice(list(fields))] = chance.choice((*MEASUREMENT_WORDS, *WORDS))
    line = "{" + ", ".join(f'"{key}": {value}' for key, value in fields.items()) + "}\n"
    return line if chance.random() < 0.98 else line[: chance.randrange(len(line))]
