"""Damage stores on purpose and ask them: each damage is harmless, healed or refused; never a wrong answer or a crash.

    python tools/attacks/damage.py [--count N] [--seed S] [--items N]

Each file of several stores gets bits flipped, pages zeroed, is cut, lengthened, removed and exchanged for that of
another store or of an older version, before the store is opened and while it is open. Then the store is asked, in
another process: by codes, filters, ids and words; it is written to, and asked again. Its answers are compared with
those of the undamaged store.
"""

import argparse
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

#: Outcomes: the same answers; the same, and the damage is gone; an error in one line; other answers; a traceback, a
#: signal or no answer within the time.
OUTCOMES = ("harmless", "healed", "refused", "WRONG", "CRASH")
SECONDS = 120.0

_PAGE = 4096
# Offsets in the header of an SQLite file that decide how the rest is read.
_SQLITE_HEADER = (0, 16, 18, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 92, 96)


@dataclass(frozen=True)
class Damage:
    """What is done to one file or folder of a store.

    Attributes:
        store: name of the store.
        file: path in the store.
        kind: flip, zero, cut, remove, append, older, other or rewrite.
        offset: where, in bytes; the size that is left by a cut.
        bit: which bit a flip flips.
        opened: the store is open already.
    """

    store: str
    file: str
    kind: str
    offset: int = 0
    bit: int = 0
    opened: bool = False

    def do(self, folder: Path, stores: Path) -> None:
        """Damage the store in ``folder``; ``stores`` has the others."""
        path = folder / self.file
        if self.kind == "remove":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif self.kind in ("older", "other"):
            shutil.copyfile(_counterpart(stores / self.kind, self.file), path)
        elif self.kind == "cut":
            os.truncate(path, self.offset)
        elif self.kind == "append":
            with open(path, "ab") as file:
                file.write(random.Random(self.offset).randbytes(self.offset))
        else:
            self._overwrite(path)

    def _overwrite(self, path: Path) -> None:
        with open(path, "r+b") as file:
            file.seek(self.offset)
            former = file.read(1 if self.kind == "flip" else _PAGE)
            file.seek(self.offset)
            if self.kind == "flip":
                file.write(bytes([former[0] ^ (1 << self.bit)]))
            elif self.kind == "zero":
                file.write(bytes(len(former)))
            else:
                file.write(random.Random(self.offset).randbytes(len(former)))


def _counterpart(store: Path, file: str) -> Path:
    """Return the file of another store that has the place of ``file``; names of snapshots differ."""
    parts = Path(file).parts
    if parts[0].startswith("snapshot-"):
        return next(iter(store.glob("snapshot-*"))).joinpath(*parts[1:])
    return store / file


def damages(stores: Path, name: str, seed: int) -> Iterator[Damage]:
    """Return the matrix of one store: every file and folder, with every kind of damage."""
    draw = random.Random(f"{seed} {name}")
    for path in sorted((stores / name).rglob("*")):
        file = str(path.relative_to(stores / name))
        if path.is_dir():
            yield Damage(name, file, "remove")
            yield Damage(name, file, "remove", opened=True)
            continue
        size = path.stat().st_size
        yield Damage(name, file, "remove")
        yield Damage(name, file, "append", draw.randrange(1, 9000))
        for damage in _of_content(name, file, size, path, draw):
            yield damage
            # Writing into what a living process maps of SQLite's own accord is beyond any program's reach.
            if not file.endswith(("-shm", "-wal")) and draw.random() < 0.3:
                yield replace(damage, opened=True)
        for other in ("older", "other"):  # a store that is one file becomes the other store
            counterpart = _counterpart(stores / other, file)
            if counterpart.is_file() and name != file and counterpart.read_bytes() != path.read_bytes():
                yield Damage(name, file, other)


def _of_content(name: str, file: str, size: int, path: Path, draw: random.Random) -> Iterator[Damage]:
    if size == 0:
        return
    flips = [*_sqlite_places(path, draw)] if file == "items.sqlite" else [0, size - 1, *_places(size, 4, draw)]
    for offset in flips:
        yield Damage(name, file, "flip", min(offset, size - 1), draw.randrange(8))
    pages = range(0, size, _PAGE)
    for offset in draw.sample(pages, min(len(pages), 16 if file == "items.sqlite" else 2)):
        yield Damage(name, file, "zero", offset)
    yield Damage(name, file, "rewrite", draw.choice(pages))
    for left in {0, size // 2, max(0, size - 1), (size - 1) // _PAGE * _PAGE}:
        yield Damage(name, file, "cut", left)


def _places(size: int, count: int, draw: random.Random) -> list[int]:
    """Return random offsets, half of them in the first bytes, where files say what they hold."""
    return [draw.randrange(min(size, 128) if i % 2 else size) for i in range(count)]


def _sqlite_places(path: Path, draw: random.Random) -> Iterator[int]:
    """Return offsets in the file's header, in the headers and cells of b-tree pages, and anywhere."""
    size = path.stat().st_size
    yield from _SQLITE_HEADER
    pages = range(size // _PAGE)
    for page in (*pages[:14], *draw.sample(pages, min(len(pages), 14))):
        start = page * _PAGE + (100 if page == 0 else 0)
        yield start + draw.randrange(12)  # type, number of cells, right-most child
        yield start + draw.randrange(8, 40)  # where the cells are
        yield start + draw.randrange(2000, 3900)
        yield (page + 1) * _PAGE - draw.randrange(1, 64)  # the first cell
    yield from (draw.randrange(size) for _ in range(20))


# One damage in a process of its own that lives on, as long as nothing kills it.


def work(stores: Path, requests: IO[str], replies: IO[str]) -> None:
    """Reply to each line, a store's name and a `Damage` or ``null``, with all answers and whether it was healed."""
    from damaged_stores import CODES, ask, write_on_and_ask

    def answers(name: str, damage: Damage | None) -> tuple[dict[str, str], bool]:
        with tempfile.TemporaryDirectory(dir=stores) as temporary:
            folder = Path(temporary) / name
            shutil.copytree(stores / name, folder)
            address = folder / CODES if name == CODES else folder
            opened = damage is not None and damage.opened
            if damage and not opened:
                damage.do(folder, stores)
            before = _content(folder, damage)
            every_item = damage is None or damage.file.startswith("items.sqlite")
            given = ask(address, every_item, (lambda: damage.do(folder, stores)) if damage and opened else None)
            healed = _content(folder, damage) != before and not opened
            return given | write_on_and_ask(address), healed

    for line in requests:
        name, described = json.loads(line)
        print(json.dumps(answers(name, Damage(**described) if described else None)), file=replies, flush=True)


def _content(folder: Path, damage: Damage | None) -> Any:
    """Return what a repair would change: the damaged file, and which snapshots there are."""
    if damage is None or damage.file.startswith("items.sqlite"):
        return None
    path = folder / damage.file
    names = sorted(entry.name for entry in folder.glob("snapshot-*"))
    return names, path.read_bytes() if path.is_file() else path.exists()


def _outcome(expected: dict[str, str], given: dict[str, str], healed: bool) -> tuple[str, str]:
    """Return the worst that an answer was, and what to say of it."""
    worst: dict[str, str] = {}
    for question, answer in given.items():
        kind = answer.partition(":")[0]  # of an answer that is no error, its digest
        if kind != expected.get(question, "").partition(":")[0]:
            worst.setdefault({"crash": "CRASH", "refused": "refused"}.get(kind, "WRONG"), f"{question}: {answer}")
    for outcome in ("CRASH", "WRONG", "refused"):
        if outcome in worst:
            return outcome, worst[outcome]
    return "healed" if healed else "harmless", ""


class Worker:
    """A process that runs `work`, started again after a damage has killed it."""

    def __init__(self, stores: Path) -> None:
        self._stores = stores
        self._process: subprocess.Popen[str] | None = None

    def answers(self, name: str, damage: Damage | None, seconds: float) -> tuple[dict[str, str], bool]:
        """Return all answers of a store, and whether it was healed; ``crash: …`` alone if the process died."""
        process = self._process = self._process or self._started()
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps([name, asdict(damage) if damage else None]) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], seconds)[0]:
            self.close()
            return {"": f"crash: no answer within {seconds:.0f} s"}, False
        if line := process.stdout.readline():
            answers, healed = json.loads(line)
            return answers, healed
        status = process.wait()
        self._process = None
        return {"": f"crash: the process ended with {status}"}, False

    def _started(self) -> "subprocess.Popen[str]":
        from damaged_stores import environment

        command = [sys.executable, __file__, "--work", str(self._stores)]
        with open(self._stores / f"errors-{id(self)}", "w") as errors:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()
            )

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def attack(stores: Path, chosen: list[Damage], n_workers: int) -> list[tuple[Damage, str, str]]:
    """Do each damage to a copy of its store; returns damage, outcome and reason."""
    workers = [Worker(stores) for _ in range(n_workers)]
    # The first one also compiles what all of them run.
    expected = {name: workers[0].answers(name, None, 10 * SECONDS)[0] for name in {damage.store for damage in chosen}}

    def run(place: int) -> list[tuple[Damage, str, str]]:
        return [
            (damage, *_outcome(expected[damage.store], *workers[place].answers(damage.store, damage, SECONDS)))
            for damage in chosen[place::n_workers]
        ]

    try:
        with ThreadPoolExecutor(n_workers) as pool:
            return [row for rows in pool.map(run, range(n_workers)) for row in rows]
    finally:
        for worker in workers:
            worker.close()


def matrix(stores: Path, names: list[str], seed: int, count: int) -> list[Damage]:
    """Return a draw of ``count`` damages of the whole matrix, which takes from each file and each kind in turn."""
    everything = [damage for name in names for damage in damages(stores, name, seed)]
    random.Random(seed).shuffle(everything)
    taken: Counter[tuple[str, str, str]] = Counter()
    turns = []
    for damage in everything:
        place = damage.store, Path(damage.file).name, damage.kind
        turns.append(taken[place])
        taken[place] += 1
    return [everything[place] for place in sorted(range(len(everything)), key=turns.__getitem__)][:count]


def table(rows: list[tuple[Damage, str, str]]) -> str:
    """Return outcomes by kind of damage as lines."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for damage, outcome, _ in rows:
        counts[damage.kind + ", opened" * damage.opened][outcome] += 1
    lines = [f"{'':18}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES)]
    for kind, of_kind in sorted(counts.items()):
        lines.append(f"{kind:18}" + "".join(f"{of_kind[outcome]:>10}" for outcome in OUTCOMES))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="so many damages of the matrix, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the places that are damaged, and of the draw")
    parser.add_argument("--items", type=int, default=600, help="number of items of a store")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # whatever else is printed goes elsewhere
        work(options.work, sys.stdin, replies)
        return
    from damaged_stores import build_stores

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        stores = Path(temporary)
        names = build_stores(stores, options.items)
        rows = attack(stores, matrix(stores, names, options.seed, options.count), options.workers)
    for damage, outcome, reason in sorted(rows, key=lambda row: (row[1], row[0].store, row[0].file)):
        if outcome in ("WRONG", "CRASH"):
            when = " while open" * damage.opened
            print(
                f"{outcome}: {damage.store}/{damage.file}: {damage.kind} {damage.offset}.{damage.bit}{when}: {reason}"
            )
    print(table(rows))
    counts = Counter(outcome for _, outcome, _ in rows)
    seconds = round(time.monotonic() - started)
    print(
        json.dumps({"attack": "damage", "count": len(rows), **{name: counts[name] for name in OUTCOMES}, "s": seconds})
    )
    sys.exit(1 if counts["WRONG"] or counts["CRASH"] else 0)


if __name__ == "__main__":
    main()
