"""ONNX Runtime keeps an identifier of the machine in the cache folder when its telemetry begins."""

import os
import subprocess
import sys


def test_no_telemetry_begins(tmp_path):
    program = "from channelhash.utils.optional_imports import onnx_runtime; onnx_runtime().get_available_providers()"
    # In CI, and among unit tests, it would not begin anyway.
    outside = ("CI", "GITHUB", "TF_BUILD", "ORT_", "XDG_", "PYTEST")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(outside)}
    subprocess.run([sys.executable, "-c", program], env=environment | {"HOME": str(tmp_path)}, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []
