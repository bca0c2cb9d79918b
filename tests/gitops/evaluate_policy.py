"""Stands in for conftest: `evaluate_policy.py POLICY_DIR NAMESPACE INPUT_FILE`, with the Rego interpreter from PyPI.

A program of its own, because that interpreter (regopy 1.5) ends its process on some errors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import regopy


def main() -> int:
    folder, namespace, file = sys.argv[1:]
    interpreter = regopy.Interpreter()
    for path in sorted(Path(folder).glob("*.rego")):
        interpreter.add_module(path.name, path.read_text())
    interpreter.set_input(json.loads(Path(file).read_text()))
    findings = {rule: messages(interpreter, f"data.{namespace}.{rule}") for rule in ("deny", "warn")}
    print(json.dumps(findings))
    return 1 if findings["deny"] else 0


def messages(interpreter: regopy.Interpreter, rule: str) -> list[str]:
    answer = str(interpreter.query(rule))
    return [] if answer == "undefined" else sorted(json.loads(answer)["expressions"][0])


if __name__ == "__main__":
    sys.exit(main())
