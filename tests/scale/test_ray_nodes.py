"""Bulk encoding and evaluation on a Ray cluster of several nodes on this machine, one of which is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from channelhash.codes.code_set import CodeSet
from channelhash.scale.encode import encode_bulk
from channelhash.scale.evaluate import evaluate_shards
from channelhash.scale.job import Workers
from scale.made_inputs import N, feature_model, write_feature_parquet
from scale.ray_cluster import RayNodes, ray_nodes
from scale.test_encode import content

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(monkeypatch):
    """A head without workers, and three nodes of one worker each: raylets, ports and object stores of their own."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    with ray_nodes(3) as nodes:
        yield nodes


def test_a_cluster_does_not_become_the_one_that_others_on_this_machine_join(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with TemporaryDirectory(prefix="ray-") as usual:  # not tmp_path, which is too long for the names of sockets
        monkeypatch.setenv("RAY_TMPDIR", usual)
        with ray_nodes(0):
            own = Path(os.environ["RAY_TMPDIR"])
            assert list(own.glob("ray/session_*/sockets/raylet*"))
            assert not list(Path(usual).iterdir())
        assert os.environ["RAY_TMPDIR"] == usual
        assert not own.exists()


@contextmanager
def driver_of(script: str) -> Iterator[subprocess.Popen[str]]:
    """Run a driver of its own on the cluster that the environment names."""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as driver:
        try:
            yield driver
        finally:
            driver.kill()


def printed(driver: subprocess.Popen[str]) -> object:
    said = json.loads(driver.communicate(timeout=300)[0].splitlines()[-1])
    assert driver.returncode == 0
    return said


def test_a_killed_node_loses_and_doubles_nothing_and_a_new_one_takes_its_place(nodes, tmp_path):
    model = feature_model(tmp_path / "model")
    for number in range(4):
        write_feature_parquet(tmp_path / "in" / f"{number}.parquet", name=f"part {number}")
    data, out = f"file://{tmp_path / 'in'}", tmp_path / "out"
    encode_bulk(model, data, tmp_path / "whole", shard_items=4)
    script = f"""
import json
from pathlib import Path
from channelhash.scale import encode
from channelhash.scale.job import Workers
from scale.slow_encoder import SlowEncoder
encode.ShardEncoder = SlowEncoder
model, out = Path({str(model)!r}), Path({str(out)!r})
print(json.dumps(encode.encode_bulk(model, {data!r}, out, Workers("ray", 3), shard_items=4)))
"""
    end = time.monotonic() + 300
    with driver_of(script) as driver:
        while len(list(out.glob("codes-*.parquet"))) < 6:
            assert driver.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        nodes.kill()
        there = len(list(out.glob("codes-*.parquet")))
        nodes.add()
        result = printed(driver)
    assert there < result["shards"]
    assert (result["items"], result["bad"], result["done_before"]) == (4 * N, 0, 0)
    assert content(out) == content(tmp_path / "whole")
    assert not list(out.rglob("*.tmp"))

    query = tmp_path / "query.parquet"
    CodeSet.load(sorted(out.glob("codes-*.parquet"))[0]).save(query)
    script = f"""
import json
from pathlib import Path
from channelhash.scale.job import Workers
from channelhash.scale.evaluate import evaluate_shards
print(json.dumps(evaluate_shards(Path({str(query)!r}), Path({str(out)!r}), Workers("ray", 3))))
"""
    with driver_of(script) as driver:
        on_nodes = printed(driver)
    assert on_nodes == json.loads(json.dumps(evaluate_shards(query, out)))


class Replacing:
    """Progress that looks at the object stores, and replaces a node when half is done."""

    def __init__(self, nodes: RayNodes) -> None:
        self.nodes, self.replaced = nodes, False

    def __call__(self, done: int, total: int) -> None:
        self.nodes.look()
        if not self.replaced and 2 * done >= total:
            self.replaced = True
            self.nodes.kill()
            self.nodes.add()


def measured(what: str, job):
    """The result of a job on three nodes, one of which is killed, and the bytes that went through their stores."""
    with ray_nodes(3) as nodes:
        began = time.perf_counter()
        result = job(workers=Workers("ray", 3), progress=Replacing(nodes))
        stores = nodes.store_bytes()
        print(f"{what}: {time.perf_counter() - began:.1f} s, {stores}")
    assert stores.spilled == 0
    return result, stores


def test_what_goes_through_object_stores_does_not_grow_with_the_items(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    handler, stores = signal.getsignal(signal.SIGTERM), {}
    model = feature_model(tmp_path / "model", n_bits=64)
    for n in (4_000, 40_000):
        data, here, there = (tmp_path / f"{name}-{n}" for name in ("in", "here", "there"))
        write_feature_parquet(data / "features.parquet", n, row_group=100)
        encode = partial(encode_bulk, model, str(data), shard_items=100)
        encode(out=here)
        result, stores["encode", n] = measured(f"encode {n}", partial(encode, out=there))
        assert result["shards"] == n // 100
        assert content(there) == content(here)  # though a node was killed and another one joined
        query = tmp_path / f"query-{n}.parquet"
        CodeSet.load(min(here.glob("codes-*.parquet"))).save(query)
        evaluate = partial(evaluate_shards, query, here)
        on_nodes, stores["evaluate", n] = measured(f"evaluate {n}", evaluate)
        assert json.dumps(on_nodes["tasks"]) == json.dumps(evaluate()["tasks"])
    assert signal.getsignal(signal.SIGTERM) is handler  # which Ray replaces
    encoded, counted = stores["encode", 40_000], stores["evaluate", 40_000]
    # The driver hands out the numbers of the shards' files; what was done comes back beside the object stores.
    assert encoded.created < 100 * 400
    # Three workers return 8 results each, and a killed one's last are made again: each has for four tasks, 100 queries
    # and 65 distances two numbers of 8 bytes, and for each query some of graded relevance.
    result = stores["evaluate", 4_000].driver / 24
    assert 4 * 100 * 65 * 2 * 8 < result < 4 * 4 * 100 * 65 * 2 * 8
    assert counted.driver < (24 + 3) * result
    assert counted.created < 2 * (24 + 3) * result
    assert counted.peak <= counted.created
