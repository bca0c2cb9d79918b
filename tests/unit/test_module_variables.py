"""A workspace's variables are the module's, in its own words, and none of them is forgotten."""

from __future__ import annotations

import re

import hcl2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.outside import assets
from planner.outside.module_variables import split_variables, variables_of
from planner.outside.render import MODULE, PROBE_WORKSPACE, WORKSPACE, render_code

DECLARED = variables_of(assets.load_module(MODULE))
# Variables of the module that a workspace says nothing of, each with the reason. Their defaults hold.
LEFT_OUT = {
    WORKSPACE: {
        "runtime_includes_waiting": "waiting for capacity must not cost the run its time",
        "replace_lost_nodes": "a training run goes on after losing a node",
        "heartbeat_seconds": "only a probe is watched closely",
        "bucket_force_destroy": "the checkpoints of a training run stay until somebody deletes them",
    },
    PROBE_WORKSPACE: {
        "source_folder": "a probe measures an image, so that another one can be told from it",
        "deep_learning_container": "a probe names its image",
        "instance_type_overrides": "a probe measures one type",
        "checkpoint_bucket": "a probe's bucket goes with it",
        "checkpoint_kms_key_arn": "a probe's bucket is its own",
        "checkpoint_tier": "a probe writes no checkpoints that must survive",
        "checkpoint_expiry_days": "the bucket is gone long before",
        "budget_usd": "AWS Budgets would speak hours after the end",
        "budget_emails": "there is no budget",
        "capacity_reservation_id": "a probe needs few nodes and can wait for them",
        "interruption_topic_arn": "a probe that loses a node is run again, by whoever watches it",
        "max_wait_seconds": "max_runtime_seconds is as short",
        "max_silence_seconds": "max_runtime_seconds is as short",
    },
}
FIRST = 'variable "first" {\n  type = string\n\n  validation {\n    condition = true\n  }\n}'
SECOND = 'variable "second" {\n  type = object({\n    inner = number\n  })\n}'

both = pytest.mark.parametrize("kind", [WORKSPACE, PROBE_WORKSPACE])


def render(kind: str, module: dict[str, str] | None = None) -> dict[str, str]:
    return render_code("1.2.3", templates=assets.load_templates(kind), module=module or assets.load_module(MODULE))


def arguments(main: str) -> set[str]:
    """What the workspace's main.tf gives the module."""
    block = re.search(r'^module "gpu_cluster" \{\n(.*?)^\}$', main, re.DOTALL | re.MULTILINE)
    assert block is not None
    return set(re.findall(r"^  (\w+) +=", block[1], re.MULTILINE)) - {"source"}


@both
def test_every_variable_of_the_module_is_given_or_left_out_for_a_reason(kind):
    given_to_it = arguments(render(kind)["main.tf"])
    assert not given_to_it & set(LEFT_OUT[kind]), "given, and listed as left out"
    assert given_to_it | set(LEFT_OUT[kind]) == set(DECLARED)


@both
def test_the_workspace_declares_what_it_passes_on_as_the_module_does(kind):
    own = {WORKSPACE: {"region"}, PROBE_WORKSPACE: {"region", "spot", "node_count", "max_runtime_seconds"}}[kind]
    files = render(kind)
    workspace = split_variables(files["variables.tf"])
    assert {name for name, text in workspace.items() if DECLARED.get(name) != text} == own
    passed_on = re.findall(r"^  (\w+) += var\.\1$", files["main.tf"], re.MULTILINE)
    assert passed_on == ["region", *(name for name in workspace if name in DECLARED)]


@both
def test_a_change_of_the_module_reaches_the_workspace(kind):
    module = assets.load_module(MODULE)
    module["variables.tf"] = module["variables.tf"].replace("VPC of the subnets;", "A {{ new }} description.")
    assert '  description = "A {{ new }} description. the module never' in render(kind, module)["variables.tf"]


@both
def test_a_variable_that_the_module_no_longer_has_is_noticed(kind):
    module = assets.load_module(MODULE)
    module["variables.tf"] = module["variables.tf"].replace('variable "vpc_id"', 'variable "network_id"')
    with pytest.raises(KeyError, match="vpc_id"):
        render(kind, module)


def test_a_parser_of_terraform_finds_the_same_variables_in_the_whole_module():
    texts = [text for name, text in assets.load_module(MODULE).items() if name.endswith(".tf")]
    declaring = [text for text in texts if re.search(r"^\s*variable\b", text, re.MULTILINE)]
    assert parsed("\n".join(declaring)) == parsed("\n".join(DECLARED.values()))
    assert len(DECLARED) > 40


def parsed(text: str) -> dict[str, object]:
    found = {}
    for declaration in hcl2.loads(text).get("variable", []):
        found |= {name.strip('"'): body for name, body in declaration.items()}
    return found


def test_blocks_are_split_and_comments_between_them_left_out():
    text = f"# The run\n\n{FIRST}\n\n# Where\n{SECOND}\n"
    assert split_variables(text) == {"first": FIRST, "second": SECOND}
    assert list(split_variables(f"{SECOND}\n\n{FIRST}\n")) == ["second", "first"]
    assert split_variables("") == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f'{FIRST}\n\noutput "first" {{\n}}\n', "expected a variable block or a comment: 'output \"first\" {'"),
        ("locals {\n  one = 1\n}\n", "expected a variable block"),
        ('variable "first" {\n  type = string\n', "expected a variable block"),
        (f'variable "open" {{\n  type = string\n\n{FIRST}\n', "expected a variable block"),
        ('variable "text" {\n  default = <<EOT\n}\nEOT\n}\n', "expected a variable block .*'EOT'"),
        ('variable "text" {\n  default = <<-EOT\n}\n  EOT\n}\n', "expected a variable block .*'  EOT'"),
        ("/*\n" + FIRST + "\n*/\n", "expected a variable block"),
        ('variable "first" {}\n', "expected a variable block"),
        ('  variable "first" {\n  }\n', "expected a variable block"),
        (FIRST.replace("\n", "\r\n") + "\r\n", "expected a variable block"),
        (FIRST, "expected a variable block"),
        (f"{FIRST}\n\n{FIRST}\n", "variable first is declared twice"),
    ],
)
def test_anything_but_formatted_variables_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        split_variables(text)


lines = st.text(st.characters(exclude_characters="\n"), max_size=12)
bodies = st.lists(lines.map(lambda line: f"  {line}") | st.just(""), max_size=5)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), bodies, max_size=5), lines)
def test_what_was_joined_is_split_again(variables, comment):
    blocks = {name: "\n".join([f'variable "{name}" {{', *body, "}"]) for name, body in variables.items()}
    assert split_variables("".join(f"# {comment}\n{block}\n\n" for block in blocks.values())) == blocks
