"""A folder that is watched: when its job runs, and what becomes of one that fails, is killed or
takes long.
"""

import os
import time
from functools import partial

import psutil
import pytest

from channelhash.errors import InputError
from channelhash.utils import watch
from channelhash.utils.watch import Report, Watch


def job(folder, progress):
    """Note the process, and do what the last file of the folder is named after."""
    with (folder / "store" / "runs").open("a") as runs:
        runs.write(f"{os.getpid()}\n")
    progress("encode")(3, 7)
    last = max(path.name for path in folder.iterdir() if path.is_file())
    if last.endswith("fails"):
        raise InputError(f"{folder}: no pictures")
    if last.endswith("dies"):
        os._exit(1)
    time.sleep(600 if last.endswith("stays") else 0)
    return ["empty picture a.jpg"], f"1 added: {last}"


def until(fact, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("polls", [False, True], ids=["noticed", "polled"])
def test_a_job_runs_at_first_and_after_each_change_and_its_end_is_reported(
    tmp_path, monkeypatch, polls
):
    monkeypatch.setattr(watch, "_PACE", {"step": 50, "rust_timeout": 150, "poll_delay_ms": 100})
    monkeypatch.setattr(watch, "_AGAIN", 0.1)
    monkeypatch.setattr(watch, "_SECONDS", 600.0)
    monkeypatch.setenv("WATCHFILES_FORCE_POLLING", "1" if polls else "disabled")
    folder, away, said, report = (
        tmp_path / "photos",
        tmp_path / "unplugged",
        list[str](),
        Report.new(),
    )
    (folder / "store").mkdir(parents=True)
    (folder / "1").touch()
    runs = lambda: (folder / "store" / "runs").read_text().split()  # noqa: E731
    with Watch(folder, folder / "store", partial(job, folder), report, said.append):
        until(lambda: said)
        (folder / ".hidden").touch()
        time.sleep(1)
        assert (said, len(runs())) == (["left out: empty picture a.jpg", "1 added: 1"], 1)
        (folder / "2fails").touch()
        until(lambda: report.problem == f"{folder}: no pictures".encode())
        (folder / "3dies").touch()
        until(lambda: b"terminated abruptly" in report.problem)
        folder.rename(away)
        until(lambda: b"cannot be watched (No such file" in report.problem)
        (away / "4").touch()
        away.rename(folder)
        until(lambda: said[-1] == "1 added: 4" and not report.problem and not report.stage)
        assert len(said) == len(set(said)) == 6
        monkeypatch.setattr(watch, "_SECONDS", 0.1)
        (folder / "5stays").touch()
        until(lambda: said[-1] == "encode 3 of 7")
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert (report.stage, report.done, report.total) == (b"encode", 3, 7)  # where it was ended
    until(lambda: not any(map(psutil.pid_exists, map(int, runs()))))
