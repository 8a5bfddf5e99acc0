"""Install a requirement into a virtual environment, a line for each step: ``python tools/install.py
.venv '.[dev]'``.

PyTorch is taken for CPUs where there is no NVIDIA GPU: on Linux the default build brings CUDA
libraries of gigabytes. In this order: from the index in ``TORCH_INDEX``, from pip's own sources, by
uv, which knows where PyTorch keeps its builds. Runs with the standard library alone, as nothing is
installed yet.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

CONSTRAINTS = "constraints.txt"
#: Extras -> what pip downloads, PyTorch for CPUs included.
_MEGABYTES = {"clip,serve,train": 480, "photos,serve": 610, "dev": 1030, "train": 470}
#: How long that took on two cores: 250 and 401 s for ``dev``, from files of the same machine.
_MINUTES = "two to seven minutes beyond the download"
#: Between two lines where there is no terminal.
_SECONDS = 15.0
_ADVICE = (
    "PyTorch's build for CPUs cannot be fetched here. pip takes the default one, which on Linux "
    "brings CUDA libraries\n"
    "    of gigabytes. To have the other: TORCH_INDEX=ADDRESS make …, with the address that\n"
    "    https://pytorch.org/get-started/locally/ names for Linux, Pip, CPU"
)


def main(venv: Path, requirement: str) -> None:
    """Make the environment, choose PyTorch's build, install, and check that all fits together."""
    if sys.version_info < (3, 11):  # noqa: UP036  # which Python make found is not known yet
        sys.exit(
            f"Python 3.11 or later is needed, this is {sys.version.split()[0]}: make "
            "PYTHON=python3.12 …"
        )
    python = venv / "bin" / "python"
    print(f"1/4 Python {sys.version.split()[0]} in {venv}", flush=True)
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(venv)])
    _torch(python)
    extras = "".join(re.findall(r"\[(.*)\]", requirement))
    size = f", about {_MEGABYTES[extras]} MB in all" if extras in _MEGABYTES else ""
    print(f"3/4 channelhash[{extras}] and what it needs{size}; takes {_MINUTES}", flush=True)
    began = time.monotonic()
    editable = ["--editable"] if requirement.startswith(".") else []
    _run([*_pip(python), *editable, requirement])
    print(f"4/4 installed in {time.monotonic() - began:.0f} s; pip check", flush=True)
    _run([str(python), "-m", "pip", "check"])


def _torch(python: Path) -> None:
    """Install PyTorch for CPUs where that is another build than pip would take."""
    if (
        subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode
        == 0
    ):
        print("2/4 PyTorch is there", flush=True)
    elif sys.platform != "linux" or has_gpu():
        print(
            f"2/4 PyTorch's default build{', for the GPU' if sys.platform == 'linux' else ''}",
            flush=True,
        )
    elif index := os.environ.get("TORCH_INDEX"):
        print("2/4 PyTorch for CPUs, from TORCH_INDEX", flush=True)
        _run([*_pip(python), "--extra-index-url", index, "torch", "torchvision"])
    elif offers_cpu_build(_versions(python), Path(CONSTRAINTS).read_text(encoding="utf-8")):
        print(
            "2/4 PyTorch for CPUs (no NVIDIA GPU here), which pip's own sources offer", flush=True
        )
    else:
        print("2/4 PyTorch for CPUs (no NVIDIA GPU here): about 190 MB, by uv", flush=True)
        if not _by_uv(python):
            print(f"    {_ADVICE}", flush=True)


def has_gpu() -> bool:
    """Return whether the driver of an NVIDIA GPU runs."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def offers_cpu_build(versions: str, constraints: str) -> bool:
    """Return whether pip would take a build for CPUs of the version of torch that the constraints
    name.
    """
    return any(
        f"{version}+cpu" in versions.split()
        for version in re.findall(r"^torch==(\S+)$", constraints, re.M)
    )


def _versions(python: Path) -> str:
    done = subprocess.run(
        [python, "-m", "pip", "index", "versions", "torch"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.replace(",", " ")


def _by_uv(python: Path) -> bool:
    """Let uv install PyTorch for CPUs; pip brings what that needs. Without uv, it is fetched for
    this alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        uv = shutil.which("uv")
        if uv is None:
            fetched = [str(python), "-m", "pip", "install", "--quiet", "--target", folder, "uv"]
            if subprocess.run(fetched, check=False).returncode:
                return False
            uv = str(Path(folder, "bin", "uv"))
        install = [
            uv,
            "pip",
            "install",
            "--python",
            str(python),
            "--torch-backend",
            "cpu",
            "--no-deps",
        ]
        packages = ["--constraint", CONSTRAINTS, "torch", "torchvision"]
        return _status([*install, *packages]) == 0


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "install", "--constraint", CONSTRAINTS]


def _status(command: list[str]) -> int:
    """Run a command; without a terminal, say now and then for how long, its last line, and what it
    said if it fails.
    """
    if sys.stdout.isatty():
        return subprocess.run(command, check=False).returncode
    began, last = time.monotonic(), deque([""], maxlen=20)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        threading.Thread(target=last.extend, args=(process.stdout,), daemon=True).start()
        while True:
            try:
                if status := process.wait(_SECONDS):
                    print("".join(last), flush=True)
                return status
            except subprocess.TimeoutExpired:
                print(f"    {time.monotonic() - began:.0f} s: {last[-1].strip()[:90]}", flush=True)


def _run(command: list[str]) -> None:
    if status := _status(command):
        sys.exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
