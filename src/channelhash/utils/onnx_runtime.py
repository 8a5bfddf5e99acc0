"""ONNX Runtime without its telemetry: import ``onnxruntime`` from here.

From 1.29 on, its packages send what models are loaded and how fast they run to Microsoft unless the variable is set
before the first import (https://github.com/microsoft/onnxruntime/pull/27379). On Windows the call ends it.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

if os.environ["ORT_DISABLE_TELEMETRY"] == "1":
    onnxruntime.disable_telemetry_events()

__all__ = ["onnxruntime"]
