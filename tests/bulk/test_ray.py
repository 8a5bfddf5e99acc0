"""Bulk encoding and evaluation on a local Ray of two workers, some of which are killed."""

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from bulk.dying import DyingEncoder, make_dying
from bulk.made_inputs import N, feature_model, write_feature_parquet
from bulk.test_shards import code_set, content, write_shards
from channelhash import bulk as shards
from channelhash.bulk import encode_bulk, evaluate_shards, workers as bulk_workers
from channelhash.bulk.workers import Workers, _start_ray
from channelhash.errors import InputError, JobError

pytestmark = pytest.mark.slow  # starting Ray takes seconds


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a local Ray with two workers, which ends with this file: others have clusters
    of their own.
    """
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        if "RAY_AUTH_MODE" not in os.environ:
            patch.setenv("RAY_AUTH_MODE", "disabled")  # no token in the home folder
        patch.delenv("RAY_ADDRESS", raising=False)
        # Workers import the tests' own workers.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        options = {"include_dashboard": False, "object_store_memory": 80 << 20}
        context = _start_ray(ray, None, num_cpus=2, num_gpus=0, **options)
        yield context.address_info["gcs_address"]
        ray.shutdown()


@pytest.fixture
def job(tmp_path) -> tuple[Path, str, Path]:
    """A model, an address of features, and the folder of their codes made in one process."""
    model = feature_model(tmp_path / "model")
    write_feature_parquet(tmp_path / "in" / "0.parquet")
    write_feature_parquet(tmp_path / "in" / "1.parquet", name="more")
    data = f"file://{tmp_path / 'in'}"
    encode_bulk(model, data, tmp_path / "whole", shard_items=8)
    return model, data, tmp_path / "whole"


SLOW_NODE = Exception("The current node timed out during startup.")
SLOW_PORT = RuntimeError("Timed out waiting for file /tmp/ray/session/gcs_server_port_07")
REFUSAL = ConnectionError("refused")


@pytest.mark.parametrize(
    ("errors", "starts"),
    [([SLOW_NODE, SLOW_PORT, None], 3), ([SLOW_PORT] * 4, 3), ([REFUSAL, None], 1)],
)
def test_a_cluster_that_starts_too_slowly_is_started_again(errors, starts):
    ray = Mock(init=Mock(side_effect=errors))
    fails = errors[starts - 1]
    with pytest.raises(type(fails), match=str(fails)) if fails else nullcontext():
        _start_ray(ray, None)
    assert ray.init.call_count == starts


def test_a_worker_killed_while_encoding_loses_and_doubles_nothing(
    cluster, job, tmp_path, monkeypatch
):
    model, data, whole = job
    monkeypatch.setattr(shards, "_ShardEncoder", DyingEncoder)
    out = tmp_path / "out"
    result = encode_bulk(model, data, out, Workers("ray", 2), shard_items=8)
    assert (out / "job" / "killed").exists()
    assert (result["items"], result["bad"], result["shards"], result["done_before"]) == (
        2 * N,
        0,
        10,
        0,
    )
    assert content(out) == content(whole)
    assert not list(out.rglob("*.tmp"))


def test_a_driver_killed_while_encoding_loses_and_doubles_nothing(cluster, job, tmp_path):
    model, data, whole = job
    arguments = [str(model), data, str(tmp_path / "out"), "ray", "24"]
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    script += f"from bulk import dying; dying.encode_and_die(*{arguments!r})"
    environment = os.environ | {"RAY_ADDRESS": cluster}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == -9, ended.stderr
    assert len(list((tmp_path / "out").glob("codes-*.parquet"))) >= 3
    # until Ray has ended the dead driver's workers, whose files are not taken for leftovers before
    time.sleep(3)
    assert encode_bulk(model, data, tmp_path / "out", shard_items=8)["done_before"] >= 3
    assert content(tmp_path / "out") == content(whole)


def test_what_a_worker_refuses_is_refused_as_here(cluster, tmp_path):
    code_set(15, 0).save(tmp_path / "q.parquet")
    shards = write_shards(tmp_path / "shards", code_set(30, 1, k=24), [])
    with pytest.raises(
        InputError, match=r"codes-0.parquet: query codes have 20 bits, database codes 24"
    ):
        evaluate_shards(tmp_path / "q.parquet", shards, Workers("ray", 1))
    with pytest.raises(InputError, match=r"count 3: the Ray cluster has 2 cores"):
        evaluate_shards(tmp_path / "q.parquet", shards, Workers("ray", 3))


def test_a_task_that_kills_every_worker_ends_the_job(cluster, monkeypatch):
    monkeypatch.setattr(bulk_workers, "_RETRIES", 1)
    with pytest.raises(JobError, match=r"2 workers died one after another at the same task \(7\)"):
        list(Workers("ray", 1).run(make_dying, lambda workers: [7]))
