"""A memory node: takes files by HTTP PUT, gives them by GET, and copies them to S3 behind.

Only the run's security group reaches the port.
"""

import json
import os
import shutil
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cloud import FAILED, POLL_SECONDS, RUN, aws, log, metadata, reason
from memory import PORT

FOLDER = Path(os.environ.get("SCAV_MEMORY_DIR", "/dev/shm/scav"))  # noqa: S108 - memory, not a temporary file


class Store:
    """Files in memory, and which of them S3 does not have yet."""

    def __init__(self):
        FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.changed = threading.Condition()
        self.changes = 0
        self.stored_at = {}
        self.waiting = {}
        for path in FOLDER.rglob("*"):  # left by this service before it was restarted
            if path.is_file():
                self.touch(str(path.relative_to(FOLDER)))

    def touch(self, name):
        with self.changed:
            self.changes += 1
            self.waiting[name] = self.changes
            self.stored_at[name] = None
            self.changed.notify_all()

    def path(self, name):
        path = (FOLDER / name).resolve()
        if path == FOLDER.resolve() or FOLDER.resolve() not in path.parents:
            raise ValueError("not a file of this folder")
        return path

    def files(self):
        with self.changed:
            return {name: at for name, at in self.stored_at.items() if (FOLDER / name).is_file()}

    def copy_behind(self):
        """One at a time, oldest change first: S3 sees the changes of a file in their order."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting)
                name, change = min(self.waiting.items(), key=lambda item: item[1])
            uri = f"s3://{RUN['bucket']}/{RUN['run_id']}/checkpoints/{name}"
            try:
                if (FOLDER / name).is_file():
                    aws("s3", "cp", str(FOLDER / name), uri, "--only-show-errors")
                else:
                    aws("s3", "rm", uri, "--only-show-errors")
            except FAILED as error:
                log(f"{name} not copied to S3, will try again: {reason(error)}")
                time.sleep(POLL_SECONDS)
                continue
            with self.changed:
                if self.waiting[name] == change:
                    del self.waiting[name]
                    self.stored_at[name] = time.time()


class Handler(BaseHTTPRequestHandler):
    """PUT, GET and DELETE of one file; GET / lists them with the time at which S3 had each."""

    store: Store
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/":
            body = json.dumps(self.store.files()).encode()
            self.answer(200, len(body))
            self.wfile.write(body)
            return
        try:
            with self.file().open("rb") as file:
                self.answer(200, os.fstat(file.fileno()).st_size)
                shutil.copyfileobj(file, self.wfile, 1 << 20)
        except (FileNotFoundError, ValueError):
            self.answer(404)

    def do_PUT(self):
        self.close_connection = True
        try:
            path = self.file()
            path.parent.mkdir(parents=True, exist_ok=True)
        except ValueError:
            self.answer(400)
            return
        partial = FOLDER.parent / f"{FOLDER.name}.{threading.get_ident()}.partial"
        left = int(self.headers["Content-Length"])
        try:
            with partial.open("wb") as file:
                while left and (part := self.rfile.read(min(left, 1 << 20))):
                    left -= file.write(part)
            if left:  # the sender went away in the middle
                return
            partial.replace(path)
        except OSError as error:  # no memory left: the sender uses S3
            self.answer(507)
            log(f"{path.name} refused: {error}")
            return
        finally:
            partial.unlink(missing_ok=True)
        self.store.touch(str(path.relative_to(FOLDER.resolve())))
        self.answer(201)

    def do_DELETE(self):
        try:
            path = self.file()
            path.unlink()
        except (FileNotFoundError, ValueError):
            self.answer(404)
            return
        self.store.touch(str(path.relative_to(FOLDER.resolve())))
        self.answer(204)

    def file(self):
        return self.store.path(urllib.parse.unquote(self.path[1:]))

    def answer(self, code, length=0):
        self.send_response(code)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_):
        # Not every request: the log group is for people.
        pass


def serve():
    Handler.store = Store()
    threading.Thread(target=Handler.store.copy_behind, daemon=True).start()
    server = ThreadingHTTPServer((metadata("local-ipv4"), PORT), Handler)  # it listens from here on
    log("memory node takes checkpoints")
    server.serve_forever()
