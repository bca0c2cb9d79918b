"""How a run ends: with its reason in S3, and never with a node that goes on costing."""
# ruff: noqa: S607

import json
import subprocess
import time

from cloud import FAILED, NOTES, RUN, attempt, aws, log, newest_checkpoint, put, reason, scale_to_zero

# Of on-demand nodes, should no spot node be left (market.py): no order may outlive the run.
ORDER_AHEAD = "on-demand-in-time"


def stop():
    """Scale the groups to 0, which also ends this node. One that cannot do that shuts down, whatever is wrong."""
    log("the run ends: group scales to 0")
    groups = [group for group in (RUN["memory_group"], RUN["fallback_group"], RUN["group"]) if group]
    if RUN["fallback_group"]:
        name = ("--auto-scaling-group-name", RUN["fallback_group"], "--scheduled-action-name", ORDER_AHEAD)
        attempt("take the order for on-demand nodes back", aws, "autoscaling", "delete-scheduled-action", *name)
    if RUN["memory_group"]:
        from memory import MemoryTier  # only nodes that need them have these files

        MemoryTier().wait_until_stored()
    refused = [group for group in groups if not emptied(group)]
    if refused:
        shut_down()


def emptied(group):
    try:
        scale_to_zero(group)
    except Exception as error:  # whatever AWS answers, this node costs nothing any more
        log(f"cannot scale {group} to 0: {reason(error)}")
        return False
    return True


def shut_down():
    """The instance is terminated: its launch template says so."""
    subprocess.run(["shutdown", "-h", "now"], check=True)


def fail(why):
    """Give the run up, and say why where whoever waits for it looks: in S3, in the log, and to the topic."""
    log(f"the run failed: {why}")
    report = json.dumps({"run_id": RUN["run_id"], "reason": why, "time": round(time.time(), 3)})
    message = ("--subject", f"scav run {RUN['run_id']} failed", "--message", report)
    tell = [("_FAILED was not written", put, "_FAILED", report)]
    if RUN["topic"]:
        tell.append(("the topic was not told", aws, "sns", "publish", "--topic-arn", RUN["topic"], *message))
    for otherwise, call, *arguments in tell:
        try:
            call(*arguments)
        except FAILED as error:
            log(f"{otherwise}: {reason(error)}")
    stop()


class Failures:
    """Failures in a row without a new checkpoint, of the job and of this agent, whose restarts they survive."""

    def __init__(self):
        self.file = NOTES / "failures.json"
        self.count, self.newest = json.loads(self.file.read_text()) if self.file.exists() else (0, 0)

    def add(self, weight=1):
        """Whether they are enough to give the run up."""
        try:
            newest = newest_checkpoint()
        except FAILED:  # S3 may be what fails
            newest = self.newest
        self.count = weight + (self.count if newest == self.newest else 0)
        self.newest = newest
        NOTES.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps([self.count, self.newest]))
        return self.count >= RUN["max_failures"]
