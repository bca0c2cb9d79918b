"""The checkpoint tier: memory takes checkpoints first, S3 gets them behind, and losing either loses nothing."""
# ruff: noqa: S310

import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from agent_node import ADDRESS, ME, MEMORY, MEMORY_URL, memory_files, memory_put, until
from stand_ins import PATIENCE_SECONDS, wait_until


@pytest.mark.usefixtures("memory_node")
def test_memory_takes_the_checkpoint_and_s3_gets_it_behind(world):
    world.set_job('mkdir "step 1"; echo weights > "step 1/shard?.pt"; echo "step 1" > latest')
    world.run("train")
    assert (world.root / "memory" / "step 1" / "shard?.pt").read_text() == "weights\n"
    assert (world.stored / "checkpoints" / "step 1" / "shard?.pt").read_text() == "weights\n"
    sources = [line.rsplit(" s3://", 1)[0] for line in world.lines("copies") if "/checkpoints/" in line]
    assert all(source.startswith(str(world.root / "memory")) for source in sources)
    assert world.groups_scaled_to_zero == ["scav-run-1-memory", "scav-run-1"]


@pytest.mark.usefixtures("memory_node")
def test_a_new_node_gets_its_checkpoint_from_memory_even_before_s3_has_it(world):
    refusing = world.root / "s3-refuses"
    refusing.touch()
    memory_put("epoch-7.pt", b"weights")
    world.set_job(f"cp epoch-7.pt seen.tmp; echo more > epoch-8.pt; rm {refusing}")
    world.run("train")
    assert (world.checkpoints / "seen.tmp").read_text() == "weights"
    assert sorted(path.name for path in (world.stored / "checkpoints").iterdir()) == ["epoch-7.pt", "epoch-8.pt"]


@pytest.mark.usefixtures("memory_node")
def test_what_memory_and_s3_both_have_comes_from_memory_unless_s3_is_newer(world):
    for name in ("same.pt", "older-here.pt"):
        memory_put(name, b"in memory")
    wait_until(lambda: all(memory_files().values()))
    time.sleep(0.05)
    (world.stored / "checkpoints" / "older-here.pt").write_text("written to S3 itself")
    world.set_job("cp same.pt same.tmp; cp older-here.pt older-here.tmp")
    world.run("train")
    assert (world.checkpoints / "same.tmp").read_text() == "in memory"
    assert (world.checkpoints / "older-here.tmp").read_text() == "written to S3 itself"
    fetched = [line for line in world.lines("copies") if line.startswith(str(world.root / "s3"))]
    assert [line.split()[0].rsplit("/", 1)[1] for line in fetched] == ["older-here.pt"]


@pytest.mark.usefixtures("memory_node")
def test_a_checkpoint_that_the_job_removes_is_removed_from_memory_and_s3(world):
    checkpoints = world.stored / "checkpoints"
    first = until(checkpoints / "epoch-1.pt")
    world.set_job(f"echo 1 > epoch-1.pt; {first}; rm epoch-1.pt; echo 2 > epoch-2.pt")
    world.run("train")
    assert list(memory_files()) == ["epoch-2.pt"]
    wait_until(lambda: [path.name for path in checkpoints.iterdir()] == ["epoch-2.pt"])


def test_without_an_answer_from_memory_checkpoints_go_to_s3(world):
    world.set_run(memory_group="scav-run-1-memory")
    world.set_nodes(ME, memory=(MEMORY,))
    world.set_job("echo weights > epoch-1.pt")
    assert "goes to S3 itself" in world.run("train")
    assert (world.stored / "checkpoints" / "epoch-1.pt").read_text() == "weights\n"


def test_a_checkpoint_that_memory_gives_only_in_part_comes_from_s3(world):
    class CutOff(BaseHTTPRequestHandler):
        def do_GET(self):
            listing = json.dumps({"epoch-1.pt": time.time() + 100}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(listing) if self.path == "/" else 100))
            self.end_headers()
            self.wfile.write(listing if self.path == "/" else b"weig")

        def log_message(self, *_):
            pass

    (world.stored / "checkpoints").mkdir()
    (world.stored / "checkpoints" / "epoch-1.pt").write_text("weights")
    world.set_run(memory_group="scav-run-1-memory")
    world.set_nodes(ME, memory=(MEMORY,))
    world.set_job("cp epoch-1.pt seen.tmp")
    with ThreadingHTTPServer((ADDRESS, 29401), CutOff) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        assert "came only in part" in world.run("train")
        server.shutdown()
        thread.join()
    assert (world.checkpoints / "seen.tmp").read_text() == "weights"


@pytest.mark.usefixtures("memory_node")
def test_memory_keeps_to_its_folder(world):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        memory_put("..%2Frun.json", b"{}")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{MEMORY_URL}/../run.json", timeout=PATIENCE_SECONDS)
    assert json.loads((world.root / "run.json").read_text())["run_id"] == "run-1"
