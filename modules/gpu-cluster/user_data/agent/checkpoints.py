"""The job's folders on this node and their copies elsewhere: in S3, and before that in a memory node."""

import glob
import json
import os
import re
import time

from cloud import RUN, STATE, aws, stored

# Files of one checkpoint that were stored one after the other.
TOGETHER_SECONDS = 120


class Mirror:
    """A local folder of which S3 keeps a copy.

    Only what this node wrote or removed goes to S3: a node that merely holds an old copy must not put it over
    a newer one. A file counts as written under its final name, so the job writes to *.tmp and renames.
    """

    def __init__(self, folder, prefix):
        self.folder = STATE / folder
        self.index = STATE / f"{folder}.json"
        self.uri = f"s3://{RUN['bucket']}/{RUN['run_id']}/{prefix}"
        self.synced = json.loads(self.index.read_text()) if self.index.exists() else {}

    def upload(self):
        """Whether there was anything new."""
        files = self.files()
        new = files != self.synced
        for name in sorted(files, key=lambda name: files[name][0]):  # oldest first: a pointer file comes last
            if self.synced.get(name) != files[name]:
                self.send(name)
                self.remember({**self.synced, name: files[name]})
        for name in sorted(set(self.synced) - set(files)):
            self.remove(name)
            self.remember({other: stamp for other, stamp in self.synced.items() if other != name})
        return new

    def send(self, name):
        aws("s3", "cp", str(self.folder / name), f"{self.uri}/{name}", "--only-show-errors")

    def remove(self, name):
        # What a job reported stays reported.
        pass

    def files(self):
        found = {}
        for path in self.folder.rglob("*"):
            try:
                stat = path.stat()
            except FileNotFoundError:  # the job has just removed it
                continue
            if path.is_file() and path.suffix not in (".tmp", ".partial"):
                found[str(path.relative_to(self.folder))] = [stat.st_mtime_ns, stat.st_size]
        return found

    def remember(self, synced):
        self.synced = synced
        self.index.write_text(json.dumps(synced))


class Checkpoints(Mirror):
    """Checkpoints also come back: a node that replaces another goes on from them."""

    def __init__(self, memory=None):
        super().__init__("checkpoints", "checkpoints")
        self.memory = memory

    def send(self, name):
        if not (self.memory and self.memory.send(name, self.folder / name)):
            super().send(name)

    def remove(self, name):
        if not (self.memory and self.memory.remove(name)):
            aws("s3", "rm", f"{self.uri}/{name}", "--only-show-errors")

    def restore(self):
        """Fetch the newest checkpoint: all that were ever written may not fit on the disk."""
        self.upload()
        copies = self.memory.copies() if self.memory else {}
        prefix = f"{RUN['run_id']}/checkpoints/"
        modified = {key[len(prefix) :]: at for key, at in stored("checkpoints/").items()}
        unstored = {name: time.time() for name, copy in copies.items() if copy["stored_at"] is None}
        wanted = newest({**modified, **unstored})
        copies = {name: copy for name, copy in copies.items() if name.split("/")[0] in wanted}
        self.fetch_what_s3_has_too(copies, modified)
        if wanted:
            patterns = [pattern for name in map(glob.escape, sorted(wanted)) for pattern in (name, f"{name}/*")]
            chosen = ["--exclude", "*", *(word for pattern in patterns for word in ("--include", pattern))]
            # Without --exact-timestamps a newer file of the same size would not be fetched.
            aws("s3", "sync", self.uri, str(self.folder), "--exact-timestamps", "--only-show-errors", *chosen)
        for name, copy in copies.items():
            if copy["stored_at"] is None:
                self.memory.fetch(name, copy, self.folder / name)
        self.remember(self.files())
        for path in (self.folder, *self.folder.rglob("*")):  # whoever the container's user is
            path.chmod(0o777 if path.is_dir() else 0o666)

    def fetch_what_s3_has_too(self, copies, modified):
        """From memory instead of from S3, unless S3 was written since; the sync then finds nothing to do."""
        held = self.files()
        for name, copy in copies.items():
            at = modified.get(name)
            if at is None or copy["stored_at"] is None or at > copy["stored_at"]:
                continue
            path = self.folder / name
            if held.get(name, [None])[0] != int(at * 1e9) and self.memory.fetch(name, copy, path):
                os.utime(path, (at, at))

    def settle(self):
        """Returns when what was sent to memory is in S3 as well."""
        if self.memory:
            self.memory.wait_until_stored()


def newest(modified):
    """Which files and folders a restart needs, of those that S3 has (name -> time).

    Those without a number in their names, and the newest of the others: with all that have the same number or were
    stored about the same time. If these are several files, a node that was lost may have left some out, so that the
    checkpoint before comes too.
    """
    times = {}
    for name, at in modified.items():
        times.setdefault(name.split("/")[0], []).append(at)
    numbers = generations(times)
    last = {name: max(times[name]) for name in numbers}
    wanted = set(times) - set(numbers)
    for _ in range(2):
        if not last:
            break
        at, number = max((at, numbers[name]) for name, at in last.items())
        one = {name for name in last if numbers[name] == number or at - last[name] < TOGETHER_SECONDS}
        wanted |= one
        if sum(len(times[name]) for name in one) == 1:
            break
        last = {name: at for name, at in last.items() if name not in one}
    return wanted


def generations(names):
    """Name -> the number that tells checkpoints apart: the first one in which names differ that are alike otherwise."""
    alike = {}
    for name in names:
        if re.search(r"\d", name):
            alike.setdefault(re.sub(r"\d+", "#", name), []).append(name)
    found = {}
    for group in alike.values():
        columns = list(zip(*(map(int, re.findall(r"\d+", name)) for name in group)))  # noqa: B905 - Python 3.8
        telling = next((column for column in columns if len(set(column)) > 1), columns[0])
        found.update(zip(group, telling))  # noqa: B905
    return found
