"""`make provider`: the archive with Python inside plans where there is neither Python nor scav."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from provider_home import REPOSITORY, at_home, write_alone

MIRROR = REPOSITORY / "build" / "provider"  # not dist/: that is what a release attaches


def test_it_plans_and_applies_without_python(terraform, tmp_path, capsys):
    shutil.rmtree(MIRROR, ignore_errors=True)
    words = ["-m", "planner", "provider", "package", "--self-contained", "--out", str(MIRROR)]
    start = time.monotonic()
    made = subprocess.run([sys.executable, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (archive,) = MIRROR.rglob("*.zip")
    with capsys.disabled():
        print(f"\n{os.path.relpath(archive, REPOSITORY)}: {archive.stat().st_size / 2**20:.0f} MiB", end="")
        print(f" in {time.monotonic() - start:.0f} s")
    plugins = tmp_path / "home/.terraform.d/plugins"
    shutil.copytree(MIRROR, plugins)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/terraform").symlink_to(terraform.executable)
    alone = at_home(terraform, tmp_path / "home")
    alone = replace(alone, environment=alone.environment | {"PATH": str(tmp_path / "bin")})
    root = write_alone(tmp_path / "root")
    for words in (["init"], ["validate"], ["plan"], ["apply", "-auto-approve"], ["plan", "-detailed-exitcode"]):
        start = time.monotonic()
        result = alone.run(*words, "-no-color", cwd=root)
        with capsys.disabled():
            print(f"terraform {words[0]}: {time.monotonic() - start:.1f} s")
        assert result.returncode == 0, result.stderr
    assert "scav_plan" in Path(root / "terraform.tfstate").read_text(encoding="utf-8")

    (prices,) = (root / ".terraform/providers").rglob("snapshot.json")
    prices.write_bytes(prices.read_bytes() + b"\n")
    refused = alone.run("plan", "-no-color", cwd=root)
    assert refused.returncode == 1
    assert "checksums" in " ".join(refused.stderr.split())
