"""Training on three machines: packets come late or never, a process is killed, a machine falls silent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from small_runs import feature_config, write_features
from training.lossy_network import LossyNetwork
from training.test_distributed import assert_same, losses

pytestmark = pytest.mark.slow

MACHINES, EPOCHS = 3, 3
#: Seconds that are longer than a machine may be silent (40) and a lost process is waited for (5).
PAUSE = 50
#: Seconds after which a process counts as hanging; processes that nobody ends would wait for 12 hours.
HANGS = 300


@pytest.fixture
def network():
    try:
        machines = LossyNetwork(MACHINES, delay=0.02, loss=0.02)
    except PermissionError as error:
        pytest.skip(str(error))
    yield machines
    machines.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A configuration, and the run of three processes on this machine that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    config = feature_config(folder / "c.yaml", write_features(folder / "f.npz"), epochs=EPOCHS, batch_size=24)
    command = torchrun("--standalone", "--nproc-per-node", str(MACHINES)) + train(config, folder / "run")
    subprocess.run(command, check=True, capture_output=True)
    return config, folder / "run"


def torchrun(*options: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options]


def train(config: Path, run: Path) -> list[str]:
    return ["-m", "channelhash", "train", str(config), "--out", str(run), "--resume"]


class Job:
    """A training with one ``torchrun`` and one process on each machine; what they write lies in ``folder``."""

    def __init__(self, network: LossyNetwork, config: Path, run: Path, folder: Path) -> None:
        self.network, self.run, self.folder = network, run, folder
        environment = os.environ | {"GLOO_SOCKET_IFNAME": network.device, "OMP_NUM_THREADS": "1"}
        folder.mkdir()
        self.launchers = []
        for machine in range(1, MACHINES + 1):
            place = ["--node-rank", str(machine - 1), "--master-addr", network.address(1), "--master-port", "29500"]
            written = ["--redirects", "3", "--log-dir", str(folder / str(machine))]
            command = network.on(machine) + torchrun("--nnodes", str(MACHINES), *place, *written) + train(config, run)
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self.launchers.append(subprocess.Popen(command, env=environment, **quiet))

    def wait_for_middle_of_epoch(self) -> None:
        """Wait until an epoch is finished and the next one exchanges packets."""
        log = self.run / "log.jsonl"
        while not log.exists() or not losses(self.run):
            self._pause()
        seen = self.network.passed
        while self.network.passed < seen + 200:
            self._pause()

    def signal(self, machine: int, number: signal.Signals) -> None:
        """Send a signal to the process that trains on a machine."""
        pid = self.launchers[machine - 1].pid
        child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        os.kill(child, number)

    def statuses(self) -> list[int]:
        return [launcher.wait(HANGS) for launcher in self.launchers]

    def errors(self, machine: int) -> str:
        (file,) = (self.folder / str(machine)).rglob("stderr.log")
        return file.read_text()

    def close(self) -> None:
        for launcher in self.launchers:
            launcher.kill()
            launcher.wait()

    def _pause(self) -> None:
        assert all(launcher.poll() is None for launcher in self.launchers)
        time.sleep(0.02)


@pytest.fixture
def start(network, whole, tmp_path):
    """Start a training on the network; a second one goes on with the first one's run."""
    jobs = []

    def start() -> Job:
        jobs.append(Job(network, whole[0], tmp_path / "run", tmp_path / f"job {len(jobs)}"))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def assert_equal(one, two):
    assert losses(one) == losses(two)
    first, second = (load_file(run / "model" / "model.safetensors") for run in (one, two))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_delay_loss_and_a_long_pause_change_nothing(network, whole, start):
    """A process that stops for longer than a machine may be silent (a long validation, say) is waited for."""
    job = start()
    job.wait_for_middle_of_epoch()
    job.signal(1, signal.SIGSTOP)
    time.sleep(PAUSE)
    job.signal(1, signal.SIGCONT)
    assert job.statuses() == [0, 0, 0]
    assert network.lost > 20
    assert_equal(whole[1], job.run)


@pytest.mark.parametrize(("machine", "says"), [(2, "killed"), (1, "silent")])
def test_the_rest_says_who_is_lost_and_the_run_goes_on(network, whole, start, machine, says):
    job = start()
    job.wait_for_middle_of_epoch()
    began = time.monotonic()
    if says == "killed":
        job.signal(machine, signal.SIGKILL)
        line = f"rank {machine - 1} on {os.uname().nodename} ended without a message: it was killed or crashed"
    else:
        network.cut(machine)
        line = f"rank {machine - 1} on {os.uname().nodename} no longer answers"
    others = [other for other in range(1, MACHINES + 1) if other != machine]
    while not all("error: " in job.errors(other) for other in others):
        assert time.monotonic() < began + HANGS
        time.sleep(0.02)
    print(f"machine {machine} {says}: the others say so after {time.monotonic() - began:.1f} s")  # shown by pytest -rP
    assert all(job.statuses())
    print(f"machine {machine} {says}: every torchrun ends after {time.monotonic() - began:.1f} s")
    for other in others:
        (error,) = [text for text in job.errors(other).splitlines() if text.startswith("error: ")]
        assert error.startswith(f"error: {line}")
        assert error.endswith("keeps all up to its last checkpoint; start every process again with --resume")
        assert "Traceback" not in job.errors(other)
    assert 0 < len(losses(job.run)) < EPOCHS

    network.mend()
    job = start()
    assert job.statuses() == [0, 0, 0]
    assert_same(whole[1], job.run)  # DDP sums in another order in the first step of a process
