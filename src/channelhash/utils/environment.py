"""What a run was made with: versions, device, commit. Nothing in it names a machine, a person or a folder."""

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from channelhash._version import __version__
from channelhash.errors import InputError
from channelhash.utils.files import write_text

#: Packages whose versions can change codes or figures.
PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "numba",
    "scipy",
    "pillow",
    "open_clip_torch",
    "timm",
    "symspellpy",
    "h5py",
    "pyarrow",
    "onnxruntime",
    "sentence-transformers",
)


def environment(device: torch.device, processes: int = 1) -> dict[str, Any]:
    """What computes in this process.

    Args:
        device: what the model is trained on.
        processes: number of processes that train together.

    Returns:
        ``{"channelhash", "git_commit", "python", "system", "device", "device_name", "cores", "threads", "processes",
        "packages": {name: version}}``. The commit is None where the code is not in a checkout, and ends in ``-dirty``
        where a tracked file was changed; packages that are not installed are left out.
    """
    return {
        "channelhash": __version__,
        "git_commit": git_commit(Path(__file__)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def usable_cores() -> int:
    """Cores that this process may run on: a job of a cluster often has few of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def git_commit(file: Path) -> str | None:
    """The commit of the checkout that ``file`` is a tracked file of; None without one, or without git.

    An installed package may lie in a folder of somebody's checkout (its ``.venv``); the file is not tracked there.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    commit, changes = _git(file.parent, "rev-parse", "HEAD"), _git(file.parent, "status", "--porcelain", "-uno")
    return f"{commit}-dirty" if commit and changes else commit


def record_environment(path: Path, found: dict[str, Any]) -> None:
    """Add ``found`` to the JSON list in ``path``, unless it ends with just that: one entry a change of environment.

    A run that was interrupted may go on somewhere else.
    """
    known = read_environments(path)
    if not known or known[-1] != found:
        write_text(path, json.dumps([*known, found], indent=2) + "\n")


def read_environments(path: Path) -> list[dict[str, Any]]:
    """What `record_environment` wrote, oldest first; an empty list if there is no such file.

    Raises:
        InputError: the file holds something else.
    """
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not readable ({error}); remove it, it is only for reports") from None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise InputError(f"{path}: not a list of environments; remove it, it is only for reports")
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, without white space around it; None if it fails or is not there."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
