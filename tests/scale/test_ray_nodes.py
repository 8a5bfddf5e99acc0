"""Bulk encoding and evaluation on a Ray cluster of several nodes on this machine, one of which is killed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from channelhash.codes.code_set import CodeSet
from channelhash.scale.encode import encode_bulk
from channelhash.scale.evaluate import evaluate_shards
from scale.made_inputs import N, feature_model, write_feature_parquet
from scale.ray_cluster import ray_nodes
from scale.test_encode import content

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(monkeypatch):
    """A head without workers, and three nodes of one worker each: raylets, ports and object stores of their own."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    with ray_nodes(3) as nodes:
        yield nodes


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
