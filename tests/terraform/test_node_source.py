"""The source that travels with the plan, on a node: unpacked, checked, and where the container starts."""

import base64
import hashlib
import json

from agent_node import RUN


def pack(world, files):
    content = json.dumps({name: base64.b64encode(text.encode()).decode() for name, text in files.items()})
    digest = hashlib.sha256(content.encode()).hexdigest()
    (world.stored / "source").mkdir()
    (world.stored / "source" / "pack.json").write_text(content)
    world.set_run(source={"key": "source/pack.json", "sha256": digest})


def test_the_source_is_unpacked_and_is_where_the_container_starts(world):
    pack(world, {"train.py": "pass\n", "lib/model.py": "pass\n"})
    world.run("train")
    source = world.root / "state" / "source"
    assert sorted(str(path.relative_to(source)) for path in source.rglob("*.py")) == ["lib/model.py", "train.py"]
    (command,) = world.containers
    assert f"{source}:/workspace" in command
    assert command[command.index("--workdir") + 1] == "/workspace"
    assert command[command.index("--entrypoint") + 1] == "torchrun"


def test_requirements_are_installed_before_torchrun_starts(world):
    pack(world, {"train.py": "pass\n", "requirements.txt": "einops\n"})
    world.run("train")
    (command,) = world.containers
    image = command.index(RUN["image"])
    assert command[image - 1] == "sh"
    assert "pip install" in command[image + 2]
    assert command[image + 3 : image + 5] == ["torchrun", "--nnodes=1"]


def test_a_source_that_was_changed_is_not_run(world):
    pack(world, {"train.py": "pass\n"})
    (world.stored / "source" / "pack.json").write_text("{}")
    world.run_as_systemd_does("train")
    assert world.containers == []
    assert "not the one that was planned" in world.why_failed
