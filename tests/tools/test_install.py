"""Which build of PyTorch `tools/install.py` takes, and what it says."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def install(monkeypatch, tmp_path):
    """The tool on a Linux machine without a GPU and without PyTorch; what it runs is listed in
    ``install.ran``.
    """
    spec = importlib.util.spec_from_file_location(
        "install", Path(__file__).parents[2] / "tools" / "install.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\ntorchvision==0.28.0\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    module.ran, module.answers = [], {"index": "", "uv": 0}

    def run(command, **_):
        command = list(map(str, command))
        module.ran.append(command)
        status = (
            1
            if "import torch" in command
            else module.answers["uv"]
            if "--torch-backend" in command
            else 0
        )
        return subprocess.CompletedProcess(command, status, module.answers["index"], "")

    monkeypatch.setattr(module.subprocess, "run", run)
    module.real_status = module._status
    monkeypatch.setattr(module, "_status", lambda command: run(command).returncode)
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    monkeypatch.setattr(module.shutil, "which", lambda name: "/bin/uv")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("TORCH_INDEX", raising=False)
    monkeypatch.chdir(tmp_path)
    return module


def installed(install):
    """Run the tool; return its commands that install."""
    install.main(Path(".venv"), ".[dev]")
    return [command for command in install.ran if "install" in command]


def test_uv_brings_the_build_for_cpus(install, capsys):
    first, second = installed(install)
    assert [line[:3] for line in capsys.readouterr().out.splitlines()] == [
        "1/4",
        "2/4",
        "3/4",
        "4/4",
    ]
    assert install.ran[-1][-1] == "check"
    assert first[:3] == ["/bin/uv", "pip", "install"]
    assert first[-3:] == ["constraints.txt", "torch", "torchvision"]
    assert second[-2:] == ["--editable", ".[dev]"]
    install.answers["uv"] = 2  # none can be fetched
    assert installed(install)[-1][-1] == ".[dev]"
    assert "TORCH_INDEX=ADDRESS make" in capsys.readouterr().out


def test_pips_own_sources_and_an_index_come_before_uv(install, monkeypatch, capsys):
    install.answers["index"] = "torch (2.15.0)\nAvailable versions: 2.15.0, 2.13.0+cpu, 2.13.0"
    assert len(installed(install)) == 1
    assert "pip's own sources" in capsys.readouterr().out
    monkeypatch.setenv("TORCH_INDEX", "file:///wheels")
    install.ran.clear()
    assert installed(install)[0][-4:] == [
        "--extra-index-url",
        "file:///wheels",
        "torch",
        "torchvision",
    ]


@pytest.mark.parametrize("where", ["gpu", "darwin"])
def test_other_machines_take_the_default_build(where, install, monkeypatch):
    monkeypatch.setattr(install, "has_gpu", lambda: where == "gpu")
    monkeypatch.setattr(sys, "platform", "linux" if where == "gpu" else where)
    assert len(installed(install)) == 1


def test_without_a_terminal_a_line_says_how_far_a_silent_step_is(install, monkeypatch, capfd):
    monkeypatch.setattr(install, "_SECONDS", 0.2)
    program = (
        "import time; print('Collecting numba', flush=True); time.sleep(1); print('Installing'); "
        "exit(3)"
    )
    assert install.real_status([sys.executable, "-c", program]) == 3
    assert re.search(r"^    \d+ s: Collecting numba$", capfd.readouterr().out, re.M)
