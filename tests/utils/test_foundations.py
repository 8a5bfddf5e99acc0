"""Seeds, the torchvision import, the public names, no telemetry; and right values on other systems
than Linux.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import channelhash as ch
from channelhash.utils.files import cache_folder
from channelhash.utils.seeds import derive_seed, generator


def test_named_seeds_are_independent_and_the_same_everywhere():
    assert derive_seed(0, "batches", 3) == 2391220022673577543
    assert derive_seed(0, "a", "b") != derive_seed(0, "a\x1fc")
    assert len({derive_seed(s, name, e) for s in range(5) for name in "ab" for e in range(5)}) == 50
    assert generator(1, "x").random() == generator(1, "x").random()


def test_public_names_are_there():
    for name in ch.__all__:
        assert getattr(ch, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ch.nonsense


@pytest.mark.slow
def test_torchvision_can_be_imported_beside_this_torch():
    """In a process of its own: whatever came first there, transforms and models work."""
    code = (
        "from channelhash.utils.torchvision_compat import torchvision; import torch\n"
        "from torchvision.transforms.v2 import functional as F\n"
        "assert F.resize(torch.zeros(3, 20, 30), [10]).shape == (3, 10, 15)\n"
        "assert torchvision.models.resnet18().eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "environment"),
    [
        ("", {"OMP_NUM_THREADS": "1"}),
        ("from channelhash.lab.experiments.runner import _start_job; _start_job(1)", {}),
    ],
    ids=["OMP_NUM_THREADS", "a job of a grid"],
)
def test_counting_leaves_the_number_of_threads_of_torch_as_it_was(setup, environment):
    code = (
        f"import channelhash as ch; {setup}\n"
        "import numpy as np, torch\n"
        "assert torch.get_num_threads() == 1\n"
        "codes, labels = np.zeros((64, 1), np.uint8), np.ones((64, 2), bool)\n"
        "ch.metrics.hamming_histogram(codes, codes, labels, labels, n_bits=8)\n"
        "assert torch.get_num_threads() == 1, torch.get_num_threads()\n"
    )
    asked = {
        key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")
    } | environment
    subprocess.run([sys.executable, "-c", code], env=asked, check=True)


def test_no_telemetry_begins(tmp_path):
    program = (
        "from channelhash.utils.optional_imports import onnx_runtime; "
        "onnx_runtime().get_available_providers()"
    )
    # In CI, and among unit tests, it would not begin anyway.
    outside = ("CI", "GITHUB", "TF_BUILD", "ORT_", "XDG_", "PYTEST")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(outside)}
    subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"HOME": str(tmp_path)},
        check=True,
        timeout=60,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"CHANNELHASH_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "/c"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/channelhash"),
        (
            {},
            {
                "win32": "/home/me/AppData/Local/channelhash/Cache",
                "darwin": "/home/me/Library/Caches/channelhash",
            },
        ),
    ],
)
def test_the_cache_lies_where_the_system_keeps_caches(variables, expected, monkeypatch):
    for name in ("CHANNELHASH_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    if isinstance(expected, dict):
        expected = expected.get(sys.platform, "/home/me/.cache/channelhash")
    assert cache_folder() == Path(expected)


@pytest.mark.parametrize(
    "settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}]
)
def test_signs_that_a_terminal_lacks_are_written_as_numbers(settings, tmp_path):
    words = [sys.executable, "-m", "channelhash", "list", "losses"]
    environment = (
        os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "0"} | settings
    )
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"\\x" in done.stdout
    assert not done.stderr
