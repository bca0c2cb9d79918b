"""Provider 6.25 knows every name that the modules use. That shows names, not behaviour: the cycles run on 5.100."""

import pytest
from provider_schema import load_schema, problems, sources, used_types


def test_the_fixture_has_the_types_that_are_used_and_no_others():
    assert used_types() == set(load_schema()), "run tests/terraform/extract_provider_schema.py"


def test_the_provider_knows_every_name_and_misses_none():
    assert problems(sources(), load_schema()) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("http_tokens ", "http_token ", "metadata_options: unknown argument http_token"),
        ("volume_size ", "volume_sizes ", "block_device_mappings.ebs: unknown argument volume_sizes"),
        ("network_card_index ", "card_index ", "network_interfaces: unknown argument card_index"),
        ("  iam_instance_profile {", "  instance_profile {", "unknown argument instance_profile"),
        ("data.aws_ami.node.architecture", "data.aws_ami.node.processor", "data.aws_ami has no attribute processor"),
        ("].efa_supported", "].efa_there", "data.aws_ec2_instance_type has no attribute efa_there"),
    ],
)
def test_a_planted_fault_is_found(before, after, problem):
    text = sources()["gpu-cluster/launch_template.tf"]
    assert before in text
    found = problems({"planted.tf": text.replace(before, after)}, load_schema())
    assert any(line.endswith(problem) for line in found), found


def test_a_missing_argument_is_found():
    text = sources()["gpu-cluster/autoscaling_group.tf"].replace("  max_size            = var.node_count\n", "")
    assert problems({"planted.tf": text}, load_schema()) == [
        "planted.tf: aws_autoscaling_group.nodes: max_size is missing"
    ]


def test_an_unknown_type_is_found():
    found = problems({"planted.tf": 'resource "aws_gpu" "one" {}\n'}, load_schema())
    assert found == ["planted.tf: aws_gpu.one: the provider has no such type, or the fixture is out of date"]
