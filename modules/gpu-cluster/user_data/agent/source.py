"""The job's own files, which came with the plan: one object in S3, unpacked beside the container."""

import base64
import hashlib
import json
import shutil
from pathlib import PurePosixPath

from cloud import RUN, STATE, aws

SOURCE = STATE / "source"


def unpack():
    """Afterwards the folder is what was planned, whatever an earlier run of the job wrote into it."""
    if not RUN["source"]:
        return
    pack = STATE / "source.json"
    aws("s3", "cp", f"s3://{RUN['bucket']}/{RUN['run_id']}/{RUN['source']['key']}", str(pack), "--only-show-errors")
    content = pack.read_bytes()
    if hashlib.sha256(content).hexdigest() != RUN["source"]["sha256"]:
        raise ValueError("the source in S3 is not the one that was planned")
    shutil.rmtree(SOURCE, ignore_errors=True)
    for name, text in json.loads(content).items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name} is outside of the source")
        path = SOURCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))
    for path in (SOURCE, *SOURCE.rglob("*")):  # whoever the container's user is
        path.chmod(0o777)
