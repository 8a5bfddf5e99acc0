"""A process that runs commands of the real command line, one after the other, and says how each ended."""

import contextlib
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

#: Memory beyond what the program has after its imports, in bytes: a file that asks for more ends in a MemoryError.
MEMORY = 4 << 30
#: Processor time of a command, and time by the clock, after which it hangs; other programs may use the machine too.
SECONDS, CLOCK = 20.0, 180.0

#: Beginning of a command that is a function: ``call:module:function``.
CALL = "call:"


class Worker:
    """The other end: starts the process, hands it commands, ends it where it hangs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the worker

    def run(self, arguments: Sequence[str], folder: Path, seconds: float = SECONDS) -> dict[str, Any]:
        """Return ``{"outcome", "status", "error", "trace"}`` of a command that runs in ``folder``."""
        process = self._process if self._process and self._process.poll() is None else self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"arguments": list(arguments), "folder": str(folder)}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answer = self._answer(process, seconds)
        if answer:
            return dict(json.loads(answer))
        hung = process.poll() is None and not _ends(process)
        if hung:
            process.send_signal(signal.SIGUSR1)  # it writes where it is
            _ends(process)
        process.kill()
        number = -process.wait()
        self._process = None
        self._log.seek(0)
        said = self._log.read().decode(errors="replace")
        began = said.rfind("Fatal Python error")  # names the signal; the call that failed comes next
        trace = said[began:][:3000] if began >= 0 else said[-3000:]
        return {"outcome": "hang" if hung else "signal", "status": -number, "error": "", "trace": trace}

    def close(self) -> None:
        """End the process."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> "subprocess.Popen[bytes]":
        self._log.seek(0)
        self._log.truncate()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        )
        assert self._process.stdout is not None
        self._answer(self._process, 120.0)  # it says that it is ready
        return self._process

    @staticmethod
    def _answer(process: "subprocess.Popen[bytes]", seconds: float) -> bytes:
        """Return the line that the process says; empty if it ended, or used that much processor time without one."""
        assert process.stdout is not None
        before, started = _processor_seconds(process.pid), time.monotonic()
        while _processor_seconds(process.pid) - before < seconds and time.monotonic() - started < CLOCK + seconds:
            if select.select([process.stdout], [], [], 0.5)[0]:
                return process.stdout.readline()
        return b""


def _processor_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ends(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether the process ends on its own: its pipe closes before it can be waited for."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.5)
    return process.poll() is not None


def run_here(arguments: Sequence[str]) -> dict[str, Any]:
    """Run one command in this process and classify its end."""
    from channelhash.cli import main

    out, error = io.StringIO(), io.StringIO()
    before, app, sys.argv = sys.argv, main.app, ["channelhash", *arguments]
    if arguments[0].startswith(CALL):
        sys.argv = ["channelhash"]
        main.app = lambda: _call(*arguments)  # type: ignore[assignment]
    status: Any = 0
    trace = ""
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            main.main()
    except SystemExit as stop:
        status = stop.code or 0
    except BaseException:
        trace = traceback.format_exc()
    finally:
        sys.argv, main.app = before, app
    said = error.getvalue()
    return {"outcome": _outcome(status, said, trace), "status": status, "error": said[-600:], "trace": trace}


def _outcome(status: Any, said: str, trace: str) -> str:
    if trace or "Traceback (most recent call last)" in said:
        return "traceback"
    if status == 0:
        return "ok"
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    if len(lines) == 1 and "this is a bug" in lines[0]:
        return "bug"
    usage = status == 2 and "Error: " in said
    return "refused" if status in (1, 2) and (len(lines) == 1 or usage) else "mute"


def _call(name: str, *arguments: str) -> None:
    import importlib

    module, _, function = name.removeprefix(CALL).partition(":")
    getattr(importlib.import_module(module), function)(*arguments)


def _serve() -> None:
    """Answer requests, a JSON object a line, until the other end closes."""
    sys.path.append(sys.path.pop(0))  # the files of this folder are not to hide installed packages
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compiled libraries print is no answer
    import faulthandler

    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    import torch

    import channelhash.config
    import channelhash.search.query  # noqa: F401

    torch.set_num_threads(1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        os.chdir(request["folder"])
        result = run_here(
            [os.fsdecode(argument.encode("utf-8", "surrogateescape")) for argument in request["arguments"]]
        )
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
