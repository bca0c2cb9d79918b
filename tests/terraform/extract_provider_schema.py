"""Writes provider_schema.json: what AWS provider 6.25.0 calls its arguments, for the types that the modules use.

    python tests/terraform/extract_provider_schema.py [WHEEL]

The facts come from PyPI's cdktf-cdktf-provider-aws 21.22.1, which was generated from that provider's schema: names,
which of them are required, how blocks nest. Not how the provider behaves. Without WHEEL it is downloaded (57 MiB).
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from provider_schema import FIXTURE, used_types

PACKAGE = "cdktf-cdktf-provider-aws==21.22.1"
PROVIDER_VERSION = "6.25.0"
# Terraform's own, which every resource and data source has in the source package.
META_ARGUMENTS = {"connection", "count", "depends_on", "for_each", "lifecycle", "provider", "provisioners"}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(sys.argv[1]) if len(sys.argv) > 1 else download(Path(folder))
        types = load_types(wheel)
    described = {name: describe(types, name) for name in sorted(used_types())}
    # A line for each type, so that a new one is a small change to review.
    lines = [f"{json.dumps(name)}: {json.dumps(facts, sort_keys=True)}" for name, facts in described.items()]
    source = json.dumps(f"{PACKAGE} (AWS provider {PROVIDER_VERSION})")
    text = f'{{\n"source": {source},\n"types": {{\n' + ",\n".join(lines) + "\n}\n}\n"
    FIXTURE.write_text(text, encoding="utf-8")


def download(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", str(folder), PACKAGE], check=True
    )
    return next(folder.glob("*.whl"))


def load_types(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        inner = next(name for name in archive.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(archive.read(inner))) as package:
            file = package.extractfile("package/.jsii")
            assert file is not None
            return json.load(file)["types"]


def describe(types: dict[str, Any], name: str) -> dict[str, Any]:
    """A type by its Terraform name: data.aws_ami or aws_launch_template."""
    kind = "data-sources" if name.startswith("data.") else "resources"
    page = f"/{PROVIDER_VERSION}/docs/{kind}/{name.removeprefix('data.').removeprefix('aws_')}#"
    config = next(full for full in types if full.endswith("Config") and is_about(types[full], page))
    parts = types[config.removesuffix("Config")]["properties"]
    readable = {snake(part["name"]) for part in parts if not part["name"].endswith("Input")}
    return {"arguments": arguments(types, config), "attributes": sorted(readable - {"tf_resource_type"})}


def is_about(described: dict[str, Any], page: str) -> bool:
    top_level = "cdktf.TerraformMetaArguments" in described.get("interfaces", [])
    return top_level and page in json.dumps(described.get("properties", []))


def arguments(types: dict[str, Any], full: str) -> dict[str, Any]:
    found = {}
    for part in types[full]["properties"]:
        text = json.dumps(part.get("docs", {}))
        name = match[1] if (match := re.search(r"#(\w+) \w+#\1}", text)) else snake(part["name"])
        if name in META_ARGUMENTS:
            continue
        facts: dict[str, Any] = {} if part.get("optional", False) else {"required": True}
        inner = re.search(r'"fqn": "(@cdktf/provider-aws\.[\w.]+)"', json.dumps(part["type"]))
        if inner and f'{name} block."' in text:
            facts["block"] = arguments(types, inner[1])
        found[name] = facts
    return found


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


if __name__ == "__main__":
    main()
