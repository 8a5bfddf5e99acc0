"""The launch examples are real: valid, with commands and options that exist, and the one for Ray
trains.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from torch.distributed.run import get_args_parser

from small_runs import feature_config, run_command, run_text, write_features
from training.test_distributed import assert_same

DEPLOY = Path(__file__).parents[2] / "deploy"
SBATCH = DEPLOY / "slurm-train.sbatch"


def test_the_slurm_script_asks_for_its_arguments():
    done = subprocess.run(
        ["bash", str(SBATCH), "c.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "usage: sbatch slurm-train.sbatch CONFIG.yaml RUN-FOLDER" in done.stderr


def test_the_slurm_script_starts_a_command_and_options_that_exist(capsys):
    on_each_node = SBATCH.read_text().replace("\\\n", " ").split("torchrun ")[-1]
    launcher, _, command = on_each_node.partition("-m channelhash ")
    known = {name for action in get_args_parser()._actions for name in action.option_strings}
    options = re.findall(r"--[\w-]+", launcher)
    assert (
        {"--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint"}
        <= set(options)
        <= known
    )
    shown = run_text(capsys, command.split()[0], "--help")
    options = re.findall(r"--[\w-]+", command)
    assert set(options) == {"--out", "--resume"}
    assert all(option in shown for option in options)


def test_the_slurm_script_runs_what_it_says(tmp_path):
    """With stand-ins for Slurm's programs, the launcher gets the nodes of the job and the options
    of the caller.
    """
    for name, line in {"scontrol": "printf 'n7\\nn8\\n'", "srun": 'printf "%s\\n" "$@"'}.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    job = {
        "SLURM_JOB_ID": "41",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "n[7-8]",
        "SLURM_GPUS_ON_NODE": "4",
    }
    environment = {**os.environ, **job, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", str(SBATCH), "a b.yaml", "runs/x", "--set=train.epochs=3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words[words.index("--rdzv-endpoint") + 1] == "n7:20041"
    assert words[words.index("--nproc-per-node") + 1] == "4"
    expected = ["train", "a b.yaml", "--out", "runs/x", "--resume", "--set=train.epochs=3"]
    assert words[words.index("train") :] == expected


@pytest.mark.slow
def test_ray_train_with_two_workers_gives_the_run_of_one_process(tmp_path):
    """A cluster that somebody else has begun on this machine, and that is gone by now, is not
    asked.
    """
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=3)
    config.write_text(config.read_text().replace('"hidden"', '"dropout": 0.0, "hidden"'))
    command = [
        sys.executable,
        str(DEPLOY / "ray_train.py"),
        config.name,
        "--out",
        "two",
        "--workers",
        "2",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["RAY_AUTH_MODE"] = "disabled"  # no token in the home folder
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "ray").mkdir()
        (Path(folder) / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
        environment["RAY_TMPDIR"] = folder
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
                              timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert run_command("train", config, "--out", tmp_path / "one") == 0
    assert_same(tmp_path / "one", tmp_path / "two")
