"""The job's folders on this node and their copies elsewhere: in S3, and before that in a memory node."""

import json
import os

from cloud import RUN, STATE, aws, stored


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
        files = self.files()
        for name in sorted(files, key=lambda name: files[name][0]):  # oldest first: a pointer file comes last
            if self.synced.get(name) != files[name]:
                self.send(name)
                self.remember({**self.synced, name: files[name]})
        for name in sorted(set(self.synced) - set(files)):
            self.remove(name)
            self.remember({other: stamp for other, stamp in self.synced.items() if other != name})

    def send(self, name):
        aws("s3", "cp", str(self.folder / name), f"{self.uri}/{name}", "--only-show-errors")

    def remove(self, name):
        """What a job reported stays reported."""

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
        self.upload()
        copies = self.memory.copies() if self.memory else {}
        self.fetch_what_s3_has_too(copies)
        # Without --exact-timestamps a newer file of the same size would not be fetched.
        aws("s3", "sync", self.uri, str(self.folder), "--exact-timestamps", "--only-show-errors")
        for name, copy in copies.items():
            if copy["stored_at"] is None:
                self.memory.fetch(name, copy, self.folder / name)
        self.remember(self.files())

    def fetch_what_s3_has_too(self, copies):
        """From memory instead of from S3, unless S3 was written since; the sync then finds nothing to do."""
        prefix = f"{RUN['run_id']}/checkpoints/"
        modified = {key[len(prefix) :]: time for key, time in stored("checkpoints/").items()} if copies else {}
        held = self.files()
        for name, copy in copies.items():
            time = modified.get(name)
            if time is None or copy["stored_at"] is None or time > copy["stored_at"]:
                continue
            path = self.folder / name
            if held.get(name, [None])[0] != int(time * 1e9) and self.memory.fetch(name, copy, path):
                os.utime(path, (time, time))

    def settle(self):
        """Returns when what was sent to memory is in S3 as well."""
        if self.memory:
            self.memory.wait_until_stored()
