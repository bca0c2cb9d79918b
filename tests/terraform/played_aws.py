"""The AWS command of played nodes: what they ask on a Unix socket, the mock AWS answers, by boto3.

Only the subcommands that the agent uses, with the exit codes and messages of the AWS CLI. In the tests' process and not
in the command itself, because importing boto3 takes longer than the rest and the agent asks several times a second.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import json
import socketserver
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from mock_aws import MockAws

Reply = dict[str, Any]


@contextlib.contextmanager
def answered_aws(aws: MockAws, on_shutdown: Callable[[str], None]) -> Iterator[Path]:
    """Yields the socket; in a folder with a short name, as sockets need."""

    class Line(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = json.loads(self.rfile.readline() or "null")
            if request is None:
                return
            try:
                if request["words"] == ["machine", "shutdown"]:
                    on_shutdown(request["instance"])
                    reply = {"code": 0, "out": ""}
                else:
                    reply = {"code": 0, "out": "", **CommandLine(aws, request).answer()}
                    if request["words"][1] == "set-instance-health":  # AWS ends what is marked unhealthy
                        on_shutdown(request["instance"])
            except (ClientError, BotoCoreError) as error:
                reply = {"code": 254, "error": str(error)}
            except Exception:  # ours: the node's log shows it
                reply = {"code": 255, "error": traceback.format_exc()}
            with contextlib.suppress(OSError):  # the node was killed meanwhile
                self.wfile.write(json.dumps(reply, default=lambda time: time.isoformat()).encode() + b"\n")

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A node that is killed breaks its connections."""

    with tempfile.TemporaryDirectory(prefix="scav-aws-") as folder, Server(f"{folder}/aws", Line) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Path(folder) / "aws"
        finally:
            server.shutdown()
            thread.join()


class CommandLine:
    """One call: its words, and what the command read from the node's files or standard input."""

    def __init__(self, aws: MockAws, request: Reply) -> None:
        self.aws = aws
        self.request = request
        self.service, self.verb, *self.words = request["words"]

    def client(self, service: str) -> Any:
        return self.aws.client(service, key="node")

    def answer(self) -> Reply:
        call = getattr(self, f"{self.service}_{self.verb}".replace("-", "_"), None)
        if call is None:
            return {"code": 252, "error": f"aws: error: the tests' stand-in has no {self.service} {self.verb}"}
        reply: Reply = call()
        return reply

    def s3api_list_objects_v2(self) -> Reply:
        found = list(self._objects(self.value("--bucket"), self.value("--prefix")))
        return _output({"Contents": found}) if found else {}

    def s3_cp(self) -> Reply:
        if self.words[0].startswith("s3://"):
            bucket, key = _parts(self.words[0])
            body = self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
            return {"body": base64.b64encode(body).decode()}
        bucket, key = _parts(self.words[1])
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=base64.b64decode(self.request["body"]))
        return {}

    def s3_rm(self) -> Reply:
        bucket, key = _parts(self.words[0])
        self.client("s3").delete_object(Bucket=bucket, Key=key)
        return {}

    def s3_sync(self) -> Reply:
        """With --exact-timestamps: what has another size or time comes."""
        bucket, prefix = _parts(self.words[0])
        files = {}
        chosen = [self.words[place + 1] for place, word in enumerate(self.words) if word == "--include"]
        for item in self._objects(bucket, f"{prefix}/"):
            name, modified = item["Key"].removeprefix(f"{prefix}/"), item["LastModified"].timestamp()
            if "--exclude" in self.words and not any(fnmatch.fnmatchcase(name, pattern) for pattern in chosen):
                continue
            if self.request["have"].get(name) != [item["Size"], modified]:
                body = self.client("s3").get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
                files[name] = {"body": base64.b64encode(body).decode(), "modified": modified}
        return {"files": files}

    def ec2_describe_instances(self) -> Reply:
        given = [
            word.removeprefix("Name=").split(",Values=") for word in self.words[self.words.index("--filters") + 1 :]
        ]
        filters = [{"Name": name, "Values": values.split(",")} for name, values in given]
        reply = self.client("ec2").describe_instances(Filters=filters)
        return _output({"Reservations": reply["Reservations"]})

    def autoscaling_set_desired_capacity(self) -> Reply:
        self.client("autoscaling").set_desired_capacity(
            AutoScalingGroupName=self.value("--auto-scaling-group-name"),
            DesiredCapacity=int(self.value("--desired-capacity")),
        )
        return {}

    def autoscaling_put_scheduled_update_group_action(self) -> Reply:
        self.client("autoscaling").put_scheduled_update_group_action(
            AutoScalingGroupName=self.value("--auto-scaling-group-name"),
            ScheduledActionName=self.value("--scheduled-action-name"),
            StartTime=self.value("--start-time"),
            DesiredCapacity=int(self.value("--desired-capacity")),
        )
        return {}

    def autoscaling_delete_scheduled_action(self) -> Reply:
        self.client("autoscaling").delete_scheduled_action(
            AutoScalingGroupName=self.value("--auto-scaling-group-name"),
            ScheduledActionName=self.value("--scheduled-action-name"),
        )
        return {}

    def autoscaling_set_instance_health(self) -> Reply:
        assert self.value("--instance-id") == self.request["instance"]
        self.client("autoscaling").set_instance_health(
            InstanceId=self.value("--instance-id"), HealthStatus=self.value("--health-status")
        )
        return {}

    def logs_create_log_stream(self) -> Reply:
        group, stream = self.value("--log-group-name"), self.value("--log-stream-name")
        self.client("logs").create_log_stream(logGroupName=group, logStreamName=stream)
        return {}

    def logs_put_log_events(self) -> Reply:
        group, stream = self.value("--log-group-name"), self.value("--log-stream-name")
        events = json.loads(self.value("--log-events"))
        self.client("logs").put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
        return {}

    def ecr_get_login_password(self) -> Reply:
        return {"out": "password\n"}

    def value(self, option: str) -> str:
        return self.words[self.words.index(option) + 1]

    def _objects(self, bucket: str, prefix: str) -> Iterator[Any]:
        for page in self.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            yield from page.get("Contents", [])


def _parts(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def _output(reply: Any) -> Reply:
    return {"out": json.dumps(reply, default=lambda time: time.isoformat())}
