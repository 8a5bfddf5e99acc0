"""Two processes of half a batch are one process of a whole one."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from channelhash.training import distributed
from picture_runs import clip_model, picture_config, write_pictures
from refusals import check_refusal
from small_runs import feature_config, run_command, write_features


def run_two(config, run, *more):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    command += ["-m", "channelhash", "train", str(config), "--out", str(run), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def losses(run):
    return [json.loads(line)["loss"] for line in (run / "log.jsonl").read_text().splitlines()]


def assert_same(one, two):
    assert losses(one) == pytest.approx(losses(two), rel=1e-5)
    first, second = (load_file(run / "model" / "model.safetensors") for run in (one, two))
    torch.testing.assert_close(first, second, atol=2e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "terms", "more"), [
    ("dsch", {}, {"accumulate": 2}),
    ("contrastive", {}, {"average": 0.8, "schedule": "cosine"}),
    ("tdsrdh", {}, {}),
    ("dsch", {"contrastive": 0.1, "pairs": 0.1, "average_precision": 0.2}, {}),
], ids=["dsch", "contrastive", "tdsrdh", "terms beside dsch"])  # fmt: skip
def test_two_ranks_of_half_a_batch_are_one_of_a_whole(tmp_path, loss, terms, more):
    config = feature_config(
        tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), loss, epochs=3, **more
    )
    # Masks of a dropout are drawn by each process for its own rows.
    settings = [
        "--set=model.dropout=0",
        *(f"--set=loss.{term}={weight}" for term, weight in terms.items()),
    ]
    assert run_command("train", config, "--out", tmp_path / "one", *settings) == 0
    result = run_two(config, tmp_path / "two", *settings)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("epochs, last mean loss") == 1
    assert_same(tmp_path / "one", tmp_path / "two")
    assert run_command("evaluate", tmp_path / "two") == 0


@pytest.mark.slow
def test_two_ranks_share_a_bank_and_one_writes(tmp_path):
    items = write_pictures(tmp_path)
    section = clip_model(tmp_path, dropout=0.0)
    config = picture_config(tmp_path / "c.yaml", items, section, "tdsrdh", augment="progressive")
    result = run_two(config, tmp_path / "two")
    assert result.returncode == 0, result.stderr
    assert run_command("train", config, "--out", tmp_path / "one") == 0
    assert_same(tmp_path / "one", tmp_path / "two")


def test_a_batch_that_cannot_be_shared_evenly_is_refused(monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    assert distributed.rows_of_rank(torch.arange(4)).tolist() == [0, 1]
    check_refusal(
        r"^train.batch_size is 33: 2 processes cannot share it evenly",
        distributed.rows_of_rank,
        torch.arange(33),
    )


def test_each_process_of_a_machine_takes_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    # which asks whether they are there
    monkeypatch.setattr(distributed, "pick_device", torch.device)
    chosen = [str(distributed.local_device(name)) for name in ("cuda", "cuda:1", "cpu")]
    assert chosen == ["cuda:3", "cuda:1", "cpu"]


@pytest.mark.slow
def test_ranks_that_the_network_does_not_join_say_so_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nodevice")
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"))
    result = run_two(config, tmp_path / "run")
    assert result.returncode != 0
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert errors
    assert all("gloo cannot join the processes: " in line for line in errors)


@pytest.mark.slow
def test_a_process_that_lost_another_says_so_in_one_line_and_the_run_goes_on(tmp_path, monkeypatch):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=400)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "channelhash",
        "train",
        str(config),
        "--out",
        str(tmp_path / "run"),
        "--resume",
    ]
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    environments = [shared | {"RANK": str(rank)} for rank in range(2)]
    ranks = [
        subprocess.Popen(command, env=each, stderr=subprocess.PIPE, text=True)
        for each in environments
    ]
    log = tmp_path / "run" / "log.jsonl"
    while not log.exists():
        assert ranks[0].poll() is None
        time.sleep(0.05)
    ranks[1].kill()
    message = ranks[0].communicate(timeout=60)[1].splitlines()[-1]
    ranks[1].communicate()
    assert ranks[0].returncode == 1
    assert message.startswith("error: rank 0 lost another process (")
    assert message.endswith("start every process again with --resume")
    done = len(losses(tmp_path / "run"))
    assert 0 < done < 400
    assert run_two(config, tmp_path / "run", "--resume").returncode == 0
    assert len(losses(tmp_path / "run")) == 400


#: Proxies and outputs on two ranks, the proxies' gradient as `Steps.run` makes it. Contrastive has
#: outputs alone.
RANK = """
import sys, torch, torch.distributed as dist
from channelhash.losses import make_loss
from channelhash.losses.base import LossShard
from channelhash.training.distributed import gather_outputs, rank, sum_gradients, world_size
if world_size() == 1 and len(sys.argv) > 2:
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
torch.set_num_threads(1)
torch.manual_seed(0)
for name in ("dnph", "dcgh", "greedyhash", "contrastive"):
    loss = make_loss(name, n_bits=8, n_labels=3)
    outputs = {modality: torch.randn(6, 8) for modality in ("image", "text")}
    labels = torch.rand(6, 3) < 0.5
    n = 6 // world_size()
    mine = {modality: values[rank() * n :][:n].requires_grad_() for modality, values in outputs.items()}
    value = loss(gather_outputs(mine), labels, shard=LossShard(rank(), world_size()))
    value.backward()
    sum_gradients(loss)
    gradients = [parameter.grad for parameter in loss.parameters()] or [torch.stack([v.grad for v in mine.values()])]
    torch.save(gradients, f"{sys.argv[1]}.{name}.{rank()}-{world_size()}")
if dist.is_initialized():  # its threads would still run while the interpreter ends
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_parameters_of_a_loss_have_the_same_gradient_on_two_ranks_as_on_one(tmp_path):
    def start(*rank):
        return subprocess.Popen([sys.executable, "-c", RANK, tmp_path / "shared", *rank])

    processes = [start(), start("0"), start("1")]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    for name in ("dnph", "dcgh", "greedyhash"):
        one, first, second = (
            torch.load(tmp_path / f"shared.{name}.{rank}") for rank in ("0-1", "0-2", "1-2")
        )
        assert len(one) == 1
        assert one[0].abs().sum() > 0
        torch.testing.assert_close(first, one)
        torch.testing.assert_close(second, one)
    one, first, second = (
        torch.load(tmp_path / f"shared.contrastive.{rank}")[0] for rank in ("0-1", "0-2", "1-2")
    )
    # DDP takes the mean over ranks
    torch.testing.assert_close(torch.cat([first, second], dim=1) / 2, one)
