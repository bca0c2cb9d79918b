"""Spot or on-demand nodes: decided by the plan's table, carried out once, spot nodes to zero and on-demand ones up.

The first node asks the table, as often as it was simulated. Its answer is one object in S3, which all nodes obey:
killing any of them at any moment leaves one decision in force. In case no node is left to ask, the on-demand group
itself has an order to start when the table would say so, which the first node puts off each time.
"""

import hashlib
import json
import time
from bisect import bisect_right

import cloud
from cloud import POLL_SECONDS, RUN, STATE, TakenOver, aws, log, nodes, put, stored
from ending import ORDER_AHEAD

ORDER, NOTE = "_on_demand", "_market.json"
LEAVE_SECONDS = 300


def joined(me):
    """What a node of the spot group decides by; None for on-demand nodes, which stay.

    There is no way back from them: nobody would be there to see whether spot has returned.
    """
    if me in {node["InstanceId"] for node in cloud.running(RUN["fallback_group"])}:
        RUN["gang"] = RUN["fallback_group"]
        if not stored(ORDER):  # the group's own order was carried out
            put(ORDER, "{}")
        cloud.scale_to_zero(RUN["group"])
        return None
    market = Market()
    market.obey(first=False)
    return market


def turn(me):
    """The job has stopped here, its checkpoint is stored. The first node that is left does what was decided."""
    put(f"_left/{me}")
    patience = time.time() + LEAVE_SECONDS
    while not cloud.finished():
        here = [node["InstanceId"] for node in nodes()]
        if here[:1] == [me] and (time.time() > patience or set(here) <= cloud.marked("_left")):
            name = ("--auto-scaling-group-name", RUN["fallback_group"])
            aws("autoscaling", "set-desired-capacity", *name, "--desired-capacity", str(RUN["node_count"]))
            cloud.scale_to_zero(RUN["group"])
        time.sleep(POLL_SECONDS)


class Market:
    """What the first node knows of its spot nodes. The next first node goes on from its note in S3."""

    def __init__(self):
        content = fetched(RUN["policy"]["key"])
        if hashlib.sha256(content).hexdigest() != RUN["policy"]["sha256"]:
            raise ValueError("the policy in S3 is not the one that was planned")
        self.table = Table(json.loads(content))
        self.began = min(stored("policy/").values())  # Terraform put it there: the apply
        note = json.loads(fetched(NOTE)) if stored(NOTE) else {"done": 0.0, "up": False, "since": self.began}
        self.done, self.up, self.since = note["done"], note["up"], note["since"]
        self.next_look = 0.0

    def obey(self, first, working_since=None, together=False):
        """Raise TakenOver once the decision has been taken, which the first node does.

        `working_since`: when the job went on, if it runs; `together`: all nodes are there, of which it may know later.
        """
        if stored(ORDER) or (first and self.look(working_since, together)):
            raise TakenOver

    def look(self, working_since, up):
        now = time.time()
        if up == self.up and now < self.next_look:
            return False
        if up != self.up:
            self.up, self.since = up, now
        self.next_look = now + self.table.step * 3600
        saved = self.saved(working_since)
        done = self.done + max(now - working_since, 0) / 3600 if up else saved
        passed, age = (now - self.began) / 3600, (now - self.since) / 3600
        if self.table.says_on_demand(done, passed, up, age, "spot" if up else "idle"):
            facts = json.dumps({"done": done, "passed": passed, "up": up, "age": age})
            log(f"on-demand nodes from now on, so that the deadline holds: {facts}")
            put(ORDER, facts)
            return True
        put(NOTE, json.dumps({"done": saved, "up": self.up, "since": self.since}))
        order_ahead(self.table.nodes, now + 3600 * self.table.latest(saved, passed, age))
        return False

    def saved(self, working_since):
        """Hours of work that a loss does not take back."""
        if working_since is None:
            return self.done
        return self.done + max(cloud.newest_checkpoint() - working_since, 0) / 3600

    def job_stopped(self, working_since):
        self.done = self.saved(working_since)


def order_ahead(count, when):
    """To the group itself, should no node be left by then. AWS takes no time that is less than a minute ahead."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(max(when, time.time() + 120)))
    name = ("--auto-scaling-group-name", RUN["fallback_group"], "--scheduled-action-name", ORDER_AHEAD)
    order = ("put-scheduled-update-group-action", *name, "--start-time", at, "--desired-capacity", str(count))
    cloud.attempt("order on-demand nodes in time", aws, "autoscaling", *order)


def fetched(name):
    path = STATE / "fetched.json"
    aws("s3", "cp", f"s3://{RUN['bucket']}/{RUN['run_id']}/{name}", str(path), "--only-show-errors")
    return path.read_bytes()


class Table:
    """Of scav.policy.json: with less slack than it says, on-demand. The same arithmetic as in the planner."""

    def __init__(self, policy):
        self.deadline = policy["deadline_hours"]
        self.nodes = policy["on_demand_count"]["on_demand"]
        self.work = policy["assumed_work_hours"]
        self.table = policy["table"]
        self.step = self.table["step_hours"]

    def says_on_demand(self, done, passed, up, age, mode):
        """By hours: of work done, since the apply, and for which the spot nodes have been there or gone."""
        table = self.table
        left = max(self.work - done, self.step)
        ages = len(table["age_edges_hours"])
        row = bisect_right(table["age_edges_hours"], age) - 1 + (0 if up else ages)
        limit = interpolated(left, table["work_left_hours"], table["slack_hours"][mode][row])
        at_risk = table["rollback_hours"] if mode == "spot" else self.step
        safe = at_risk + table["restart_hours"] + table["margin_hours"]
        return self.deadline - passed - left < max(limit, safe)

    def latest(self, done, passed, age):
        """When it would say so if no spot node came back from now on, in hours from now."""
        waited = 0.0
        while passed + waited < self.deadline and not self.says_on_demand(
            done, passed + waited, False, age + waited, "idle"
        ):
            waited += self.step
        return waited


def interpolated(value, points, values):
    """As numpy.interp finds the place, held at both ends."""
    if value <= points[0]:
        return values[0]
    if value >= points[-1]:
        return values[-1]
    below = bisect_right(points, value) - 1
    part = (value - points[below]) / (points[below + 1] - points[below])
    return values[below] * (1 - part) + values[below + 1] * part
