"""What Terraform asks of moto's server, written down beside the file of faults: for which permissions that takes."""

import functools
import json
import sys
from pathlib import Path
from typing import Any

from flask import request
from moto.core.utils import convert_to_flask_response


def install() -> None:
    convert_to_flask_response.__call__ = note_calls(convert_to_flask_response.__call__)


def note_calls(answer: Any) -> Any:
    @functools.wraps(answer)
    def answer_and_note(*args: Any, **kwargs: Any) -> Any:
        if "Terraform/" in request.headers.get("User-Agent", ""):
            call = {
                "service": request.headers.get("Authorization", "").partition("Credential=")[2].split("/")[3],
                "operation": request.headers.get("X-Amz-Target", "").rpartition(".")[2] or request.form.get("Action"),
                "method": request.method,
                "path": request.path,
                "query": list(request.args),
            }
            with Path(sys.argv[1]).with_name("calls.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(call) + "\n")
        return answer(*args, **kwargs)

    return answer_and_note
