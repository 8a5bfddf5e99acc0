"""What an indexing run tells about itself, to another process and to a server."""

import subprocess
import sys
import threading

from fastapi.testclient import TestClient

from channelhash.search import open_store
from channelhash.search.items import IndexingRun
from channelhash.search.local import indexing_run
from channelhash.search.local.folder import StoreFolder
from channelhash.search.local.indexing_run import hold_run, read_run
from channelhash.serve import create_app
from channelhash.utils.progress import no_progress, no_stage_progress

KILLED = """
import os, sys
from pathlib import Path
from channelhash.search.local.indexing_run import hold_run
from channelhash.utils.progress import no_stage_progress
with hold_run(Path(sys.argv[1]), no_stage_progress) as progress:
    progress("encode")(1, 2)
    os._exit(0)
"""


def test_a_run_tells_how_far_it_is_until_it_ends(tmp_path, monkeypatch):
    seen, store = [], open_store(tmp_path, n_bits=8)
    store.make()
    monkeypatch.setattr(indexing_run, "_PAUSE", 0)
    with TestClient(create_app(store, None)) as client:
        assert client.get("/info").json()["indexing"] is None
        with hold_run(tmp_path, lambda stage: lambda done, total: seen.append((stage, done, total))) as progress:
            progress("look")(0, 10)
            assert store.indexing_run() == IndexingRun("look", 0, 10)
            progress("encode")(3, 7)
            assert client.get("/info").json()["indexing"] == {"stage": "encode", "done": 3, "total": 7}
        assert client.get("/info").json()["indexing"] is None
    assert seen == [("look", 0, 10), ("encode", 3, 7)]
    assert not StoreFolder(tmp_path).run.exists()


def test_a_second_run_waits_for_the_first_and_says_so(tmp_path):
    said, order = [], []

    def second() -> None:
        def progress(stage):
            said.append(stage)
            first_may_end.set()
            return no_progress

        with hold_run(tmp_path / "store", progress):
            order.append("second")

    first_may_end = threading.Event()
    with hold_run(tmp_path / "store", no_stage_progress):
        other = threading.Thread(target=second)
        other.start()
        assert first_may_end.wait(20)
        order.append("first")
    other.join(20)
    assert order == ["first", "second"]
    assert said == [f"waiting for another command that indexes {tmp_path / 'store'}"]
    assert not (tmp_path / "store").exists()  # neither has made a store


def test_a_killed_run_is_none(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=True)
    assert StoreFolder(tmp_path).run.exists()
    assert read_run(tmp_path) is None


def test_a_run_that_cannot_tell_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing_run, "_PAUSE", 0)
    with hold_run(tmp_path, no_stage_progress) as progress:
        StoreFolder(tmp_path).run.mkdir()
        progress("encode")(1, 2)
        assert read_run(tmp_path) is None
        StoreFolder(tmp_path).run.rmdir()
