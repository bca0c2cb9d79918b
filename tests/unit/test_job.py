"""The job file: what it may say, and one sentence with file, line and key for everything else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.contract import FORMS
from planner.errors import InputError
from planner.inputs.job.fields import CountRange
from planner.inputs.job.parse import parse_job
from planner.inputs.job.schema import Job
from planner.inputs.job.workload import Origins, Workload
from planner.inputs.measurements import Measurement
from planner.outside import assets

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def refusal(text, **overrides):
    with pytest.raises(InputError) as caught:
        parse_job(text, file="scav.yaml", overrides=overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def changed(job_text):
    """The small job with one piece of its text replaced."""

    def change(old, new):
        assert job_text.count(old) == 1
        return job_text.replace(old, new)

    return change


def test_a_small_job_reads_as_plain_numbers(job_text):
    job = parse_job(job_text, file="scav.yaml").job
    assert job.name == "small"
    assert job.workload.dataset_samples == 1_280_000
    assert job.workload.flops_per_sample == pytest.approx(24.6e9)
    assert job.workload.global_batch == CountRange(256, 1024)
    assert job.workload.target_samples == 90 * 1_280_000
    assert job.constraints.deadline_hours == 24
    assert job.constraints.budget_usd == 400
    assert job.constraints.regions == ("us-east-1",)
    assert job.objective_or_default == "cost"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/scav.yaml")), ids=lambda path: path.parent.name)
def test_examples_are_valid_and_named_like_their_folder(path):
    assert parse_job(path.read_text(encoding="utf-8"), file="scav.yaml").job.name == path.parent.name


def test_the_starter_file_is_valid_as_it_stands_and_with_its_comments_taken_off():
    starter = assets.load_starter_job()
    parse_job(starter, file="scav.yaml")
    uncommented = [line.replace("# ", "", 1) if _is_setting(line) else line for line in starter.splitlines()]
    text = "\n".join(uncommented).replace("<64 hex digits>", "0" * 64)
    job = parse_job(text, file="scav.yaml").job
    assert len(job.workload.convergence.runs) == 2
    assert job.constraints.quotas.spot.g == 192
    assert job.run.command == ("train.py", "--data", "s3://my-bucket/data")


def _is_setting(line):
    """A commented-out key or list item, not a sentence."""
    line = line.lstrip()
    return line.startswith("# -") or (line.startswith("#") and line.lstrip(" #").split(" ")[0].endswith((":", "-")))


def test_only_a_budget_means_the_fastest(changed):
    assert parse_job(changed("  deadline: 24h\n", ""), file="scav.yaml").job.objective_or_default == "time"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: small", "nmae: small", "scav.yaml:1: nmae: unknown key; did you mean name? (and 1 more)"),
        ("  deadline", "  deadlin", "scav.yaml:12: constraints.deadlin: unknown key; did you mean deadline?"),
        ("  deadline", "  Deadline", "scav.yaml:12: constraints.Deadline: unknown key; did you mean deadline?"),
        ("  deadline", "  deadline_hours", "scav.yaml:12: constraints.deadline_hours: unknown key; did you mean d"),
        ("    epochs", "    epoch", "scav.yaml:9: workload.target.epoch: unknown key; did you mean epochs?"),
        (
            "  nodes: 1..2",
            "  zzzz: 1",
            "constraints.zzzz: unknown key; known here: deadline, budget, max_runtime, confidence",
        ),
        ("  parameters: 25.6M\n", "", "scav.yaml:2: workload.parameters: this key is required"),
        ("24h", "-24h", "scav.yaml:12: constraints.deadline: '-24h' must be above zero"),
        ("24h", "24", "scav.yaml:12: constraints.deadline: '24' is not a duration; write 24h, 90min or 1d12h"),
        ("$400", "plenty", "scav.yaml:13: constraints.budget: 'plenty' is not an amount of dollars; write $400"),
        ("256..1024", "1024..256", "workload.global_batch: '1024..256' has its minimum above its maximum; write 256"),
        ("256..1024", "1..1e9", "workload.global_batch: a global batch of 1,000,000,000 is beyond what scav searches"),
        ("nodes: 1..2", "nodes: 1..2000", "scav.yaml:15: constraints.nodes: 2,000 nodes are beyond what scav"),
        ("epochs: 90", "epochs: many", "workload.target.epochs: input should be a valid number"),
        ("epochs: 90", "epochs: true", "workload.target.epochs: input should be a valid number"),
        ("epochs: 90", "epochs: nan", "workload.target.epochs: input should be a finite number"),
        ("epochs: 90", "samples: 1M\n    epochs: 90", "workload.target: give either samples or epochs"),
        ("    epochs: 90\n", "", "workload.target: give either samples or epochs"),
        ("reference_batch: 256", "reference_batch: 1e25", "reference_batch: input should be less than or equal to 16"),
        ('["g5.*"]', "g5.*", "constraints.instance_types: 'g5.*' must be a list; write [a, b]"),
        ('["g5.*"]', "[]", "constraints.instance_types"),
        ('["g5.*"]', "[[g5.*]]", "constraints.instance_types.0: input should be a valid string"),
        ("name: small", "name: Small Job", "scav.yaml:1: name: 'Small Job' is not small letters, digits and"),
        ("name: small", "name: small\nobjective: fame", "objective: 'fame' is not one of 'cost', 'time' or 'knee'"),
        ("name: small", "name: small\nworkload: 7\n#", "scav.yaml:2: workload: '7' must be a group of `key: value`"),
        ("constraints:\n", "constraints: cheap\nx:\n", "unknown key"),
        ("constraints:\n", "constraints:\n  confidence: 1\n", "constraints.confidence: input should be less than"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_key(changed, old, new, message):
    text = changed(old, new)
    if old == "name: small" and "workload: 7" in new:
        text = text.split("#")[0]
    assert message in refusal(text)


def test_a_value_is_given_unless_its_origin_is_said(changed):
    text = changed("  target", "  origins: {parameters: measured, flops_per_sample: derived}\n  target")
    origins = parse_job(text, file="x").job.workload.origins
    assert (origins.parameters, origins.flops_per_sample) == ("measured", "derived")
    assert (origins.activation_bytes_per_sample, origins.dataset_samples) == ("given", "given")


@pytest.mark.parametrize(
    ("origins", "message"),
    [
        ("{flops: measured}", "workload.origins.flops: unknown key; did you mean flops_per_sample?"),
        ("{zzzz: measured}", "workload.origins.zzzz: unknown key; known here: dataset_samples, flops_per_sample, para"),
        ("{parameters: guessed}", "parameters: 'guessed' is not one of 'measured', 'derived' or 'given'"),
        ("measured", "workload.origins: 'measured' must be a group of `key: value` lines"),
        (
            "{gradient_bytes: derived}",
            "workload: origins says that gradient_bytes is derived, and there is no gradient_bytes",
        ),
    ],
)
def test_an_origin_of_nothing_is_refused(changed, origins, message):
    assert message in refusal(changed("  target", f"  origins: {origins}\n  target"))


def test_every_origin_is_that_of_a_key():
    assert set(Origins.model_fields) < set(Workload.model_fields)


def test_what_feeds_the_gpus_may_be_named_in_one_word(changed):
    short = parse_job(changed("  target", "  input: jpeg\n  target"), file="scav.yaml").job.workload.input
    long = parse_job(changed("  target", "  input: {kind: jpeg}\n  target"), file="scav.yaml").job.workload.input
    assert short == long
    said = "  input: {kind: other, cpu_seconds_per_sample: 8.5ms, bytes_per_sample: 2kB, source: fsx}\n  target"
    full = parse_job(changed("  target", said), file="scav.yaml").job.workload.input
    assert (full.cpu_seconds_per_sample, full.bytes_per_sample, full.source) == (0.0085, 2000.0, "fsx")
    assert parse_job(changed("small", "small"), file="scav.yaml").job.workload.input is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("jpg", "workload.input.kind: 'jpg' is not one of 'jpeg', 'tokens', 'tensors' or 'other'"),
        ("{source: s3}", "workload.input.kind: this key is required"),
        ("{kind: jpeg, source: nfs}", "workload.input.source: 'nfs' is not one of 's3', 'fsx' or 'volume'"),
        ("{kind: jpeg, cpu_seconds_per_sample: 0}", "workload.input.cpu_seconds_per_sample: '0' must be above zero"),
        ("{kind: jpeg, cpu_seconds_per_sample: 1h}", "'1h' is not a number of seconds; write 0.0085 or 8.5ms"),
        ("{kind: jpeg, cpu_seconds_per_sample: 1e9}", "cpu_seconds_per_sample: input should be less than or equal to"),
        ("{kind: jpeg, byte_per_sample: 1}", "workload.input.byte_per_sample: unknown key; did you mean bytes_per_"),
    ],
)
def test_a_mistake_about_feeding_is_named(changed, said, message):
    assert message in refusal(changed("  target", f"  input: {said}\n  target"))


def test_spot_without_checkpoints_is_refused_and_says_why(changed):
    text = changed("  nodes: 1..2", "  nodes: 1..2\n  spot: always").replace(
        "  target", "  checkpoint_bytes: 0\n  target"
    )
    assert "without one a lost node loses the run" in refusal(text)


@pytest.mark.parametrize(
    "name", ['"; ${path}"', '"a\\nb"', "'\"; ${path}\nrm'", "a" * 40, "ümlaut", "-a", '"small\\n"', '"${path}"']
)
def test_a_name_that_terraform_could_misread_is_refused_on_one_line(changed, name):
    assert "name" in refusal(changed("name: small", f"name: {name}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "scav.yaml: the file is empty; `scav init` writes one to start from"),
        ("# only a comment\n", "the file is empty"),
        ("---\n", "scav.yaml:1: must be a list of `key: value` lines"),
        ("- a\n", "must be a list of `key: value` lines"),
        ("just words", "must be a list of `key: value` lines"),
        ("a: [1, 2", "scav.yaml:1: not valid YAML"),
        ("a: 1\n\tb: 2", "scav.yaml:2: not valid YAML"),
        ("a: 1\n b: 2", "scav.yaml:2: not valid YAML"),
        ("a: 'x", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("a: \x00", "not valid YAML: unacceptable character"),
        ('a: "\\U00110000"', "not valid YAML"),
        ('a: "\\UFFFFFFFF"', "not valid YAML"),
        ("%YAML " + "1" * 5000 + ".1\n---\na: 1", "not valid YAML"),
        ("a: &x [1]\nb: *x", "scav.yaml:2: not valid YAML: aliases (*name) are not supported"),
        ("<<: {name: a}", "scav.yaml:1: <<: unknown key"),
        ("? [a]\n: b", "scav.yaml:1: a key must be a word"),
        ("name: a\nrun: {}\nname: b", "scav.yaml:3: name: this key stands here twice"),
        ("run:\n  id: a\n  id: b", "scav.yaml:3: run.id: this key stands here twice"),
        ("a: " + "[" * 600, "nested too deeply"),
        ("a: " + "[" * 600 + "]" * 600, "nested too deeply"),
        ("{a: " * 3000, "nested too deeply"),
        ("x" * (2 << 20), "larger than 256 KiB: this is not a job file"),
        ('name: "\\uD800"', "name: input should be a valid string"),
    ],
)
def test_what_is_no_job_at_all_is_refused(text, message):
    assert message in refusal(text)


def test_nested_bombs_of_aliases_are_refused_before_they_grow():
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True))
    assert "aliases" in refusal(bomb)


@pytest.mark.parametrize("written", ["\r\n", "\r", "\n\n"])
def test_line_endings_do_not_matter(job_text, written):
    assert parse_job(job_text.replace("\n", written), file="x").job == parse_job(job_text, file="x").job


def test_a_byte_order_mark_does_not_matter(job_text):
    assert parse_job("\ufeff" + job_text, file="x").job == parse_job(job_text, file="x").job


def test_tags_cannot_make_objects(changed):
    assert "name" in refusal(changed("name: small", "name: !!python/object/apply:os.system [ls]"))
    assert parse_job(changed("name: small", "name: !!python/name:os.system small"), file="x").job.name == "small"


def test_words_that_yaml_reads_as_something_else_stay_words(changed):
    text = changed("name: small", "name: 1e3\nrun: {id: no, command: [train.py, --amp, true, 0o17, 1:30, '~']}")
    job = parse_job(text, file="x").job
    assert (job.name, job.run.id) == ("1e3", "no")
    assert job.run.command == ("train.py", "--amp", "true", "0o17", "1:30", "~")


def test_a_key_without_a_value_says_nothing(changed):
    assert parse_job(changed("  deadline: 24h", "  deadline:"), file="x").job.constraints.deadline_hours is None
    assert parse_job(changed("  deadline: 24h", "  deadline: ~"), file="x").job.constraints.deadline_hours is None


def test_overrides_replace_the_file(job_text):
    overrides = {"deadline": "2h", "regions": ["eu-west-1"], "objective": "time"}
    job = parse_job(job_text, file="x", overrides=overrides).job
    assert (job.constraints.deadline_hours, job.constraints.regions, job.objective) == (2, ("eu-west-1",), "time")
    assert job.constraints.budget_usd == 400


def test_a_bad_override_blames_the_command_line_not_the_file(job_text):
    assert refusal(job_text, deadline="soon").startswith("command line: constraints.deadline: 'soon' is not a duration")
    assert refusal(job_text, objective="fame").startswith("command line: objective: 'fame' is not one of")
    job_file = parse_job(job_text, file="scav.yaml", overrides={"regions": ["mars"]})
    assert (
        str(job_file.error(("constraints", "regions", 0), "unknown")) == "command line: constraints.regions.0: unknown"
    )
    assert str(job_file.error(("constraints", "nodes"), "few")) == "scav.yaml:15: constraints.nodes: few"


def test_the_schema_accepts_the_examples_and_refuses_an_unknown_key():
    schema = Job.model_json_schema(mode="validation")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for path in EXAMPLES.glob("*/scav.yaml"):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        validator.validate(data)
        with pytest.raises(jsonschema.ValidationError, match="surprise"):
            validator.validate({**data, "surprise": 1})


@given(st.text(max_size=200))
def test_any_text_is_refused_with_an_input_error(text):
    assert refusal(text)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_any_value_of_any_key_ends_in_a_job_or_an_input_error(value):
    for key in ("name", "workload", "constraints", "objective", "network", "run"):
        with pytest.raises(InputError):
            parse_job(json.dumps({key: value}), file="scav.yaml")


@pytest.mark.parametrize(
    ("command", "words"),
    [('["train.py", "a\\0b"]', "NUL"), (f'["train.py", "{"x" * 3000}"]', "longer than 3,000 characters")],
    ids=["NUL", "too long for user data"],
)
def test_a_command_that_no_node_could_be_given_is_refused(job_text: str, command: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_job(f"{job_text}run:\n  command: {command}\n", file="scav.yaml")


def test_every_form_is_also_said_in_words():
    schemas = json.dumps([Job.model_json_schema(), Measurement.model_json_schema()])
    patterns = set(re.findall(r'"pattern":\s*"((?:[^"\\]|\\.)*)"', schemas))
    assert {json.loads(f'"{pattern}"') for pattern in patterns} == set(FORMS)
