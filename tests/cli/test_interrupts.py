"""Signals: real processes that are stopped at once, in the middle, twice, and where a library swallows the stop."""

import signal
import subprocess
import sys
import time

import pytest

from cli.test_kills import obeys

#: A command of the command line's that is in the middle of its work: it waits for the signal.
WAITING = """
import os, sys, time
from channelhash.cli import main, interrupts
def wait():
    interrupts.when_stopped("the half is kept")
    try:
        {body}
    finally:
        print("closed", flush=True)
main.app.command("wait")(wait)
sys.argv = ["channelhash", "wait", "--now"]
sys.argv.pop()
main.main()
"""
SLEEPING = "print('begun', flush=True); time.sleep(60)"


def begun(body: str = SLEEPING) -> subprocess.Popen[str]:
    """A process that is in the middle of its work."""
    command = [sys.executable, "-c", WAITING.format(body=body)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize(
    ("number", "status", "name"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")]
)
def test_a_stopped_command_closes_its_files_and_says_how_to_go_on(number, status, name):
    process = begun()
    process.send_signal(number)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "closed\n")
    assert error == f"stopped by {name}: the half is kept; continue with: channelhash wait\n"


@pytest.mark.parametrize(
    "body",
    [
        f"{SLEEPING}\n    except BaseException: raise ValueError('closing failed') from None",
        f"{SLEEPING}\n    except BaseException: pass",
    ],
)
def test_a_stop_that_becomes_another_error_or_none_is_a_stop(body):
    process = begun(body)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert error == "stopped by SIGTERM: the half is kept; continue with: channelhash wait\n"


def test_a_second_signal_ends_a_command_that_does_not_come_to_its_end():
    process = begun(f"{SLEEPING}\n    except BaseException: print('closing', flush=True); time.sleep(60)")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "closing\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=50)
    assert (process.returncode, out) == (130, "")
    assert error == "stopped by Ctrl-C: the half is kept; continue with: channelhash wait\n"


def test_a_signal_while_python_ends_changes_nothing():
    body = (
        "class Last:\n            def __del__(self, write=os.write, sleep=time.sleep): write(1, b'last\\n'); sleep(1)\n"
        f"        main.last = Last(); {SLEEPING}"
    )
    process = begun(body)
    process.send_signal(signal.SIGTERM)
    assert [process.stdout.readline() for _ in range(2)] == ["closed\n", "last\n"]
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert error == "stopped by SIGTERM: the half is kept; continue with: channelhash wait\n"


def test_a_command_that_only_imports_ends_at_once(tmp_path):
    command = [sys.executable, "-m", "channelhash", "train", "no such file.yaml"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    while not obeys(process):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == ("stopped by Ctrl-C: nothing half is left; continue with: channelhash train 'no such file.yaml'\n")
