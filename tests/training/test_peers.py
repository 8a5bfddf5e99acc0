"""Processes that watch each other: who leaves in order, who is lost, and what a failed exchange becomes."""

import socket
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from channelhash.errors import InputError, JobError
from channelhash.training import peers
from channelhash.training.peers import watching_peers


@pytest.fixture
def ended(monkeypatch):
    """Set when a process ends at once, which these tests would not survive; its exit status is ``ended.status``."""
    event = threading.Event()
    event.status = None

    def leave(status):
        event.status = status
        event.set()

    monkeypatch.setattr(peers.os, "_exit", leave)
    monkeypatch.setattr(peers, "_GRACE", 0.5)
    return event


@pytest.fixture
def train(monkeypatch, ended):
    """Run functions as the processes of a training, each in a thread; return what each returned or raised."""
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "1")
    store = dist.HashStore()

    def train(*blocks):
        ends = [None] * len(blocks)

        def run(rank):
            try:
                with watching_peers(store, rank, len(blocks)):
                    ends[rank] = blocks[rank]()
            except Exception as error:
                ends[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(blocks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ends

    return train


def fail(error):
    raise error


def test_processes_that_end_in_order_are_no_loss(train):
    first_is_done = threading.Event()
    assert train(first_is_done.set, lambda: first_is_done.wait() and "second", lambda: "third") == [
        None,
        "second",
        "third",
    ]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (JobError("the loss is NaN"), f"the loss is NaN; {peers._GO_ON}"),
        (InputError("runs/a: another process is working"), "runs/a: another process is working"),  # resuming is no use
    ],
)
def test_a_failed_exchange_names_the_process_that_ended_and_its_reason(train, monkeypatch, error, said):
    monkeypatch.setattr(peers, "_GRACE", 30)
    first, second, third = train(lambda: fail(RuntimeError("broken pipe")), lambda: fail(error), lambda: "third")
    assert type(first) is JobError
    assert str(first) == f"rank 1 on {socket.gethostname()} ended: {said}"
    assert (second, third) == (error, "third")


def test_an_error_while_the_others_are_there_stays_what_it_is(train):
    bug = RuntimeError("a bug")
    time_to_end = threading.Timer(0.7, lambda: None)  # after the first has looked for a loss
    time_to_end.start()
    assert train(lambda: fail(bug), time_to_end.join)[0] is bug


def test_a_process_that_waits_for_a_lost_one_ends_with_one_line(train, ended, capfd):
    refused = InputError("items.csv: no such file")
    assert train(lambda: ended.wait(60), lambda: fail(refused)) == [True, refused]
    assert ended.status == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line == f"error: rank 1 on {socket.gethostname()} ended: items.csv: no such file"


@pytest.mark.parametrize(
    ("said", "rank"),
    [(b"s" * 32 + b"       3", 3), (b"x" * 32 + b"       3", None), (b"GET / HTTP/1.1\r\n", None), (b"", None)],
)
def test_only_a_caller_with_the_secret_gets_a_place(said, rank):
    caller, called = socket.socketpair()
    with caller, called:
        caller.sendall(said)
        caller.shutdown(socket.SHUT_WR)
        assert peers._caller(called, "s" * 32) == rank


def test_a_process_that_ends_without_a_message_was_killed():
    one, other = socket.socketpair()
    with one:
        other.close()
        said = peers._said(one, "rank 1 on n7")
    assert said == f"rank 1 on n7 ended without a message: it was killed or crashed; {peers._GO_ON}"


def test_what_a_process_says_first_is_why_it_ended():
    """It may pass on who was lost, and end by that loss itself before the other one reads either."""
    one, other = socket.socketpair()
    with one, other:
        other.sendall(b"rank 2 on n8 was killed\nrank 1 on n7 ended: broken pipe\n")
        assert peers._said(one, "rank 1 on n7") == "rank 2 on n8 was killed"


@pytest.mark.parametrize(("master", "host"), [("localhost", "localhost"), ("127.0.0.1", "127.0.0.1")])
def test_on_the_first_machine_others_use_its_own_name(monkeypatch, master, host):
    monkeypatch.setenv("MASTER_ADDR", master)
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert peers._own_host() == host


def test_a_process_that_does_not_start_is_named():
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=0.06))
    with pytest.raises(JobError, match=r"^rank 3 has not started in time; its own messages say why$"):
        peers._published(store, "peer 0 3", 3)


def test_a_process_that_cannot_be_reached_is_named():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(JobError, match=rf"cannot reach rank 1 on n7 at 127\.0\.0\.1, port {port} \(.*refused"):
        peers._call(peers._Address("127.0.0.1", port, "s", "n7"), 2, 1)


def test_a_rank_that_ends_before_it_calls_is_not_waited_for(train, monkeypatch):
    monkeypatch.setattr(peers, "_CONNECT", 0.2)
    call = peers._call

    def only_to_the_first(address, rank, other):
        return fail(JobError("killed")) if rank == 2 and other == 1 else call(address, rank, other)

    monkeypatch.setattr(peers, "_call", only_to_the_first)
    ends = train(lambda: "first", lambda: "second", lambda: "third")
    assert "a later rank ended before it connected" in str(ends[1])
    assert str(ends[2]) == "killed"
