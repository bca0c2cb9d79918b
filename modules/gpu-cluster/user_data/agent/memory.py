"""Checkpoints in the memory of on-demand nodes: a GPU node that is about to go hands them over at network speed.

GPU nodes (`MemoryTier`) fall back to S3 wherever a memory node (memory_node.py) does not answer.
"""
# ruff: noqa: S310

import json
import shutil
import time
import urllib.parse
import urllib.request
import zlib

from cloud import DIRECT, FAILED, POLL_SECONDS, RUN, log, reason, running

PORT = 29401


class MemoryTier:
    """The memory nodes as a GPU node sees them. Nothing here fails: S3 is the answer when memory has none."""

    def send(self, name, path):
        addresses = self.addresses()
        if not addresses:
            return False
        # Where an older version is, so that no two nodes hold one name; else spread by name.
        older = self.copies(addresses).get(name)
        address = older["address"] if older else addresses[zlib.crc32(name.encode()) % len(addresses)]
        try:
            with path.open("rb") as file:
                size = {"Content-Length": str(path.stat().st_size)}
                self.call("PUT", address, name, data=file, headers=size).close()
        except FAILED as error:
            log(f"{name} goes to S3 itself, memory node {address} did not take it: {error}")
            return False
        return True

    def remove(self, name):
        copy = self.copies().get(name)
        try:
            if copy:
                self.call("DELETE", copy["address"], name).close()
        except FAILED:
            return False
        return copy is not None

    def fetch(self, name, copy, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        try:
            with self.call("GET", copy["address"], name) as reply, partial.open("wb") as file:
                shutil.copyfileobj(reply, file, 1 << 20)
            if partial.stat().st_size != int(reply.headers["Content-Length"]):
                raise OSError("it came only in part")
            partial.replace(path)
        except FAILED as error:
            log(f"{name} not fetched from memory node {copy['address']}: {error}")
            return False
        return True

    def copies(self, addresses=None):
        """Name -> where it is, and since when S3 has it too (None: not yet)."""
        found = {}
        for address in self.addresses() if addresses is None else addresses:
            try:
                with self.call("GET", address, "") as reply:
                    files = json.load(reply)
            except (*FAILED, ValueError):  # gone, or cut off in the middle
                continue
            found.update({name: {"address": address, "stored_at": stored_at} for name, stored_at in files.items()})
        return found

    def wait_until_stored(self, limit_seconds=120):
        until = time.time() + limit_seconds
        while any(copy["stored_at"] is None for copy in self.copies().values()):
            if time.time() > until:
                log("some checkpoints in memory are not in S3 yet; not waiting any longer")
                return
            time.sleep(min(POLL_SECONDS, 2))

    def addresses(self):
        try:
            return sorted(node["PrivateIpAddress"] for node in running(RUN["memory_group"]))
        except FAILED as error:
            log(f"cannot list the memory nodes: {reason(error)}")
            return []

    def call(self, method, address, name, **request):
        url = f"http://{address}:{PORT}/{urllib.parse.quote(name)}"
        return DIRECT.open(urllib.request.Request(url, method=method, **request), timeout=60)
