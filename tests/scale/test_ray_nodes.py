"""Bulk encoding and evaluation on a Ray cluster of several nodes on this machine, one of which is killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from channelhash.codes.code_set import CodeSet
from channelhash.scale.encode import encode_bulk
from channelhash.scale.evaluate import evaluate_shards
from scale.made_inputs import N, feature_model, write_feature_parquet
from scale.test_encode import content

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(monkeypatch):
    """A head without workers, and three nodes of one worker each: raylets, ports and object stores of their own."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    small = {"object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    for _ in range(3):
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    yield cluster
    cluster.shutdown()


def start(cluster, script: str) -> subprocess.Popen[str]:
    """Start a driver of its own on the cluster."""
    environment = os.environ | {"RAY_ADDRESS": cluster.address}
    return subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)


def test_a_killed_node_loses_and_doubles_nothing_and_a_new_one_takes_its_place(nodes, tmp_path):
    model = feature_model(tmp_path / "model")
    for number in range(4):
        write_feature_parquet(tmp_path / "in" / f"{number}.parquet", name=f"part {number}")
    data, out = f"file://{tmp_path / 'in'}", tmp_path / "out"
    encode_bulk(model, data, tmp_path / "whole", shard_items=4)
    driver = start(
        nodes,
        f"""
import json
from pathlib import Path
from channelhash.scale import encode
from channelhash.scale.engines import Workers
from scale.slow_encoder import SlowEncoder
encode.ShardEncoder = SlowEncoder
model, out = Path({str(model)!r}), Path({str(out)!r})
print(json.dumps(encode.encode_bulk(model, {data!r}, out, Workers("ray", 3), shard_items=4)))
""",
    )
    while len(list(out.glob("codes-*.parquet"))) < 6:
        assert driver.poll() is None
        time.sleep(0.02)
    victim = sorted(nodes.worker_nodes, key=lambda node: node.unique_id)[0]
    nodes.remove_node(victim, allow_graceful=False)  # SIGKILL to all its processes
    there = len(list(out.glob("codes-*.parquet")))
    nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    result = json.loads(driver.communicate(timeout=300)[0].splitlines()[-1])
    assert driver.returncode == 0
    assert there < result["shards"]
    assert (result["items"], result["bad"], result["done_before"]) == (4 * N, 0, 0)
    assert content(out) == content(tmp_path / "whole")
    assert not list(out.rglob("*.tmp"))

    query = tmp_path / "query.parquet"
    CodeSet.load(sorted(out.glob("codes-*.parquet"))[0]).save(query)
    driver = start(
        nodes,
        f"""
import json
from pathlib import Path
from channelhash.scale.engines import Workers
from channelhash.scale.evaluate import evaluate_shards
print(json.dumps(evaluate_shards(Path({str(query)!r}), Path({str(out)!r}), Workers("ray", 3))))
""",
    )
    on_nodes = json.loads(driver.communicate(timeout=300)[0].splitlines()[-1])
    assert on_nodes == json.loads(json.dumps(evaluate_shards(query, out)))
