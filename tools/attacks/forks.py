"""Fork a process that has searched, evaluated or encoded, and use what it has open in the child.

Usage: ``python tools/attacks/forks.py``. Each case runs in a process of its own with a time limit. It *works*, *fails*
(a signal, another answer) or *hangs*.
"""

import argparse
import atexit
import gc
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import channelhash as ch

N_ITEMS, N_QUERIES, N_BITS = 20_000, 20, 64
_SECONDS = 60  # of a child; a case has three times as many


def make_store(folder: Path, n_items: int = N_ITEMS) -> ch.Store:
    """Make a store of random codes in ``folder``."""
    codes = np.random.default_rng(0).integers(0, 256, (n_items, N_BITS // 8), dtype=np.uint8)
    store = ch.open_store(folder / "s.store", N_BITS)
    store.add([f"{number:06}" for number in range(n_items)], {"image": codes})
    return store


def queries(seed: int = 1) -> Any:
    """Return random packed codes."""
    return np.random.default_rng(seed).integers(0, 256, (N_QUERIES, N_BITS // 8), dtype=np.uint8)


def in_child(work: Callable[[], Any]) -> None:
    """Run ``work`` in a forked child that ends as any Python program does; fail as the child fails."""
    child = get_context("fork").Process(target=work)
    child.start()
    child.join(_SECONDS)
    if child.is_alive():
        child.kill()
        raise TimeoutError
    if child.exitcode:
        raise ChildProcessError(f"exit {child.exitcode}")


_opened: dict[str, Any] = {}  # what the workers of pools inherit, or open


def _search_opened(seed: int) -> list[list[str]]:
    found: list[list[str]] = _opened["store"].search(queries(seed), k=5).ids
    return found


def _open_in_worker(address: str) -> None:
    _opened["store"] = ch.open_store(address)


class _Searches:
    """A data set of PyTorch whose items are searches."""

    def __init__(self, address: str, store: ch.Store | None) -> None:
        self._address, self._store = address, store

    def __len__(self) -> int:
        return 4

    def __getitem__(self, seed: int) -> str:
        self._store = self._store or ch.open_store(self._address)
        return self._store.search(queries(seed), k=5).ids[0][0]


def search_in_child(folder: Path) -> None:
    """Search in a child as its parent did, with filters and all within a radius too."""
    store = make_store(folder)

    def answers() -> list[Any]:
        return [
            store.search(queries(), k=5).ids,
            store.search_radius(queries(), radius=20).ids,
            store.search(queries(), k=2, where="id < '000100'").ids,
        ]

    expected = answers()

    def check() -> None:
        assert answers() == expected

    in_child(check)
    assert answers() == expected


def search_in_memory(folder: Path) -> None:
    """Search in a child in a store that is in memory only."""
    codes = np.random.default_rng(0).integers(0, 256, (N_ITEMS, N_BITS // 8), dtype=np.uint8)
    path = folder / "codes.parquet"
    ch.CodeSet([f"{number:06}" for number in range(N_ITEMS)], {"image": codes}, None, n_bits=N_BITS).save(path)
    store = ch.open_store(path)
    expected = store.search(queries(), k=5).ids

    def check() -> None:
        assert store.search(queries(), k=5).ids == expected

    in_child(check)


def map_in_pool(folder: Path) -> None:
    """Map searches over the parent's store in a forked pool."""
    _opened["store"] = make_store(folder)
    expected = [_search_opened(seed) for seed in range(4)]
    with get_context("fork").Pool(2) as pool:
        assert pool.map_async(_search_opened, range(4)).get(_SECONDS) == expected
    assert _search_opened(0) == expected[0]


def map_in_spawned_pool(folder: Path) -> None:
    """Map searches in a spawned pool over stores that its workers open."""
    _opened["store"] = store = make_store(folder)
    expected = [_search_opened(seed) for seed in range(4)]
    with get_context("spawn").Pool(2, _open_in_worker, (str(store.address),)) as pool:
        assert pool.map_async(_search_opened, range(4)).get(_SECONDS) == expected


def load_with_workers(folder: Path, method: str = "fork") -> None:
    """Search in the workers of a data loader of PyTorch."""
    from torch.utils.data import DataLoader

    store = make_store(folder)
    expected = [store.search(queries(seed), k=5).ids[0][0] for seed in range(4)]
    dataset: Any = _Searches(str(store.address), store if method == "fork" else None)
    loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context=method, timeout=_SECONDS)
    assert [name for batch in loader for name in batch] == expected


def load_with_spawned_workers(folder: Path) -> None:
    """Do the same with workers that are spawned."""
    load_with_workers(folder, "spawn")


def evaluate_in_child(folder: Path) -> None:
    """Compute in a child the scores that its parent has computed."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (2000, N_BITS // 8), dtype=np.uint8)
    labels = random.random((2000, 5)) < 0.3
    both = ch.CodeSet([str(row) for row in range(2000)], {"image": codes, "text": codes}, labels, n_bits=N_BITS)

    def scores() -> str:
        return repr(ch.metrics.evaluate(both.take(range(100)), both))

    expected = scores()

    def check() -> None:
        assert scores() == expected

    in_child(check)


def encode_in_child(folder: Path) -> None:
    """Encode in a child with the model that its parent has encoded with."""
    import torch

    from channelhash.models import Branch

    torch.set_num_threads(max(2, torch.get_num_threads()))
    network = torch.nn.Sequential(torch.nn.Linear(2000, 2000), torch.nn.ReLU())
    model = ch.HashModel("mine", 64, {}, {"image": Branch(torch.tensor, network, torch.nn.Linear(2000, 64))})
    rows = np.random.default_rng(0).normal(size=(512, 2000)).astype(np.float32)
    expected = model.encode("image", rows)

    def check() -> None:
        assert (model.encode("image", rows) != expected).mean() < 0.01

    in_child(check)


def write_from_both(folder: Path) -> None:
    """Write to one store from parent and child, which closes it; each sees what the other wrote."""
    store = make_store(folder, 500)
    store.search(queries(), k=5)

    def write(first: int) -> None:
        for number in range(first, first + 20):
            store.add([f"{number:06}"], {"image": queries(number)[:1]})

    def child() -> None:
        write(1000)
        assert store.search(queries(1003)[:1], k=1).ids == [["001003"]]
        store.close()

    process = get_context("fork").Process(target=child)
    process.start()
    write(2000)
    process.join(_SECONDS)
    assert process.exitcode == 0, process.exitcode
    write(3000)
    assert len(store) == 560
    assert store.search(queries(1003)[:1], k=1).ids == [["001003"]]
    store.close()
    assert len(ch.open_store(store.address)) == 560


def exit_with_open_store(folder: Path) -> None:
    """End a child that never uses the store as a program ends; its parent goes on writing."""
    store = make_store(folder, 500)
    for number in range(1000, 1010):
        pid = os.fork()
        if pid == 0:
            del store
            gc.collect()
            atexit._run_exitfuncs()
            os._exit(0)
        store.add([f"{number:06}"], {"image": queries(number)[:1]})
        assert os.waitpid(pid, 0)[1] == 0
    assert len(store) == 510


def search_while_forking(folder: Path) -> None:
    """Fork while other threads of the parent search and write; all find what they look for."""
    store = make_store(folder, 5000)
    expected, ended, failed = store.search(queries(), k=5).ids, threading.Event(), []

    def work(write: bool) -> None:
        number = 0
        try:
            while not ended.is_set():
                if write:
                    store.add([f"x{number}"], {"text": queries(number)[:1]})
                assert store.search(queries(), k=5, modality="image").ids == expected
                number += 1
        except BaseException as error:
            failed.append(error)

    def check() -> None:
        assert store.search(queries(), k=5, modality="image").ids == expected

    threads = [threading.Thread(target=work, args=(write,)) for write in (True, False, False)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            in_child(check)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


#: Name -> case; a case gets an empty folder.
CASES: dict[str, Callable[[Path], None]] = {
    case.__name__: case
    for case in (
        search_in_child,
        search_in_memory,
        map_in_pool,
        map_in_spawned_pool,
        load_with_workers,
        load_with_spawned_workers,
        evaluate_in_child,
        encode_in_child,
        write_from_both,
        exit_with_open_store,
        search_while_forking,
    )
}


def run_case(*names: str) -> str:
    """Run cases one after another in a process of their own: "works", "fails" or "hangs"."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "2")
    command = [sys.executable, __file__, "--case", *names]
    with subprocess.Popen(
        command, env=os.environ | threads, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            output = process.communicate(timeout=3 * _SECONDS)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return "hangs"
    if process.returncode == 0:
        return "works"
    sys.stderr.write(output)
    return "hangs" if process.returncode == 3 else "fails"


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    names = parser.parse_args().case
    if not names:
        outcomes = {name: run_case(name) for name in CASES}
        for name, outcome in outcomes.items():
            print(f"{name:28} {outcome}")
        print(json.dumps({"cases": len(outcomes), **Counter(outcomes.values())}))
        return
    try:
        for name in names:
            folder = tempfile.mkdtemp()  # a TemporaryDirectory would go with the first child that ends
            CASES[name](Path(folder))
            shutil.rmtree(folder)
    except (TimeoutError, multiprocessing.TimeoutError):
        os._exit(3)  # children that hang would be waited for


if __name__ == "__main__":
    _main()
