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
from channelhash.cli import main, when_stopped
def wait():
    when_stopped("the half is kept")
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


def assert_stopped(process: subprocess.Popen[str], number: signal.Signals, out: str) -> None:
    """Send a signal; the process ends by it, or by the one before, and says what was kept and how to go on."""
    process.send_signal(number)
    printed, error = process.communicate(timeout=60)
    status, name = {signal.SIGINT: (130, "Ctrl-C"), signal.SIGTERM: (143, "SIGTERM")}[number]
    assert (process.returncode, printed) == (status, out)
    assert error == f"stopped by {name}: the half is kept; continue with: channelhash wait\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("end", ["", "raise ValueError('closing failed') from None", "pass"])
def test_a_stopped_command_closes_its_files_and_says_how_to_go_on(number, end):
    """A stop that becomes another error, or none, is a stop, too."""
    body = f"{SLEEPING}\n    except BaseException: {end}" if end else SLEEPING
    assert_stopped(begun(body), number, "closed\n")


def test_a_second_signal_ends_a_command_that_does_not_come_to_its_end():
    process = begun(f"{SLEEPING}\n    except BaseException: print('closing', flush=True); time.sleep(60)")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "closing\n"
    assert_stopped(process, signal.SIGINT, "")


def test_a_signal_while_python_ends_changes_nothing():
    body = "class Last:\n            def __del__(self, write=os.write, sleep=time.sleep): "
    body += f"write(1, b'last\\n'); sleep(1)\n        main.last = Last(); {SLEEPING}"
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
