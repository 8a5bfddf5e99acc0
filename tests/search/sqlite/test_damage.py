"""Damage to any file of a store is harmless, healed or refused in one line; never a wrong answer
and never a crash.

``pytest -s -m slow tests/search/sqlite/test_damage.py`` prints the table of
docs/reference/guarantees.md.

Bits of each file are flipped, its pages zeroed and overwritten, it is cut, lengthened, removed and
exchanged for that of an older version or of another store, before the store is opened and while it
is open. Then a process of its own asks the store by codes, filters, ids and words, writes to it,
and asks again.
"""

import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import repeat, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import channelhash as ch
from channelhash.codes.stage import Stage
from channelhash.errors import InputError, JobError
from extras import needs

OUTCOMES = ("harmless", "healed", "refused", "WRONG", "CRASH")
SECONDS, PAGE, N_BITS = 600.0, 4096, 24
CODES = "codes.parquet"  # the store that is a file of codes, in a folder of the same name
WHERE = (
    "year > 2000",
    "label = 'dog'",
    "year BETWEEN 1995 AND 2010 OR label = 'sea'",
    "text LIKE '%beach%'",
)
LABELS, NOUNS = ("dog", "cat", "sea", "city"), ("dog", "cat", "beach", "sea", "tree")
# Offsets in the header of an SQLite file that decide how the rest is read.
SQLITE_HEADER = (0, 16, 18, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 92, 96)


class Damage(NamedTuple):
    """What is done to one file or folder of a store, at an offset; a cut leaves so many bytes; of
    no kind, nothing.
    """

    store: str
    file: str
    kind: str
    offset: int = 0
    bit: int = 0
    opened: bool = False

    def do(self, folder: Path, stores: Path) -> None:
        path = folder / self.file
        if not self.kind:
            return
        if self.kind == "remove":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif self.kind in ("older", "other"):
            shutil.copyfile(counterpart(stores / self.kind, self.file), path)
        elif self.kind == "cut":
            os.truncate(path, self.offset)
        else:
            content = bytearray(path.read_bytes())
            page = slice(self.offset, min(self.offset + PAGE, len(content)))
            noise = random.Random(self.offset).randbytes(PAGE)
            if self.kind == "append":
                content += noise * 2
            elif self.kind == "flip":
                content[self.offset] ^= 1 << self.bit
            else:
                content[page] = (bytes(PAGE) if self.kind == "zero" else noise)[
                    : page.stop - page.start
                ]
            with open(path, "r+b") as file:  # the same file, not another one in its place
                file.write(content)


def counterpart(store: Path, file: str) -> Path:
    """The file of another store that has the place of ``file``; names of snapshots differ."""
    parts = Path(file).parts
    if parts[0].startswith("snapshot-"):
        return next(iter(store.glob("snapshot-*"))).joinpath(*parts[1:])
    return store / file


def damages(stores: Path, name: str, seed: int) -> Iterator[Damage]:
    """The matrix of one store: every file and folder, with every kind of damage."""
    draw = random.Random(f"{seed} {name}")
    for path in sorted((stores / name).rglob("*")):
        file = str(path.relative_to(stores / name))
        yield Damage(name, file, "remove")
        if path.is_dir():
            yield Damage(name, file, "remove", opened=True)
            continue
        yield Damage(name, file, "append")
        for damage in of_content(name, file, path, draw):
            yield damage
            # Writing into what a living process maps of SQLite's own accord is beyond any program's
            # reach.
            if not file.endswith(("-shm", "-wal")) and draw.random() < 0.3:
                yield damage._replace(opened=True)
        for other in ("older", "other"):  # a store that is one file becomes the other store
            with suppress(OSError, StopIteration):
                if (
                    name != file
                    and counterpart(stores / other, file).read_bytes() != path.read_bytes()
                ):
                    yield Damage(name, file, other)


def of_content(name: str, file: str, path: Path, draw: random.Random) -> Iterator[Damage]:
    if not (size := path.stat().st_size):
        return
    flips = [0, size - 1, *(draw.randrange(min(size, 128) if i % 2 else size) for i in range(4))]
    if file == "items.sqlite":
        flips = [*SQLITE_HEADER, *(draw.randrange(size) for _ in range(20))]
        for page in {*range(14), *(draw.randrange(size // PAGE) for _ in range(14))}:
            start = page * PAGE + (100 if page == 0 else 0)
            # Type, number of cells, right-most child; where the cells are; a cell; the first cell.
            flips += [
                start + draw.randrange(*place)
                for place in ((0, 12), (8, 40), (2000, 3900), (3800, 3996))
            ]
    for offset in flips:
        yield Damage(name, file, "flip", min(offset, size - 1), draw.randrange(8))
    pages = range(0, size, PAGE)
    for offset in draw.sample(pages, min(len(pages), 16 if file == "items.sqlite" else 2)):
        yield Damage(name, file, "zero", offset)
    yield Damage(name, file, "rewrite", draw.choice(pages))
    for left in {0, size // 2, max(0, size - 1), (size - 1) // PAGE * PAGE}:
        yield Damage(name, file, "cut", left)


def items(
    start: int, stop: int, seed: int = 0
) -> tuple[list[str], dict[str, np.ndarray], list[dict[str, Any]]]:
    """Ids, codes of both modalities and metadata of some items."""
    rows = range(start, stop)
    drawn = np.random.default_rng([seed, start, stop])
    codes = {
        name: drawn.integers(0, 256, (len(rows), N_BITS // 8), dtype=np.uint8)
        for name in ("image", "text")
    }
    metadata = [
        {
            "text": f"a {NOUNS[row % 5]} and a {NOUNS[row * 7 % 5]} on picture {row}",
            "year": 1990 + row * 31 % 33,
            "labels": [LABELS[row % 4]] * (row % 5 > 0) + ["old"] * (row % 7 == 0),
        }
        for row in rows
    ]
    return [f"item {row:05d}" for row in rows], codes, metadata


def outputs_of(codes: np.ndarray) -> np.ndarray:
    return np.where(ch.codes.unpack(codes, N_BITS), 1, -1) * np.random.default_rng(3).uniform(
        0.1, 1, N_BITS
    )


def put(
    store: ch.Store,
    ids: list[str],
    codes: dict[str, np.ndarray],
    metadata: list[dict[str, Any]] | None,
) -> None:
    outputs = {name: outputs_of(rows) for name, rows in codes.items()} if store.projected else None
    store.upsert(ids, codes, metadata=metadata, projections=outputs)


def build(folder: Path, n_items: int) -> None:
    """Write stores, and die of SIGKILL: ``layers`` has a snapshot, what was written since, and a
    model; ``clusters`` an index with those in it; ``young`` no snapshot; ``killed`` is what the
    killed writer left; `CODES` is a file."""
    from channelhash.data.records import Records
    from channelhash.models import MODELS
    from channelhash.search import index
    from channelhash.search.sqlite import snapshots

    snapshots._LEAST_IN_SNAPSHOT = n_items
    index._START = -(1 << 40)  # clusters are always worth it
    texts = tuple(f"a {a} and a {b} on picture" for a in NOUNS for b in NOUNS)
    records = Records(
        tuple(map(str, range(25))), {"text": texts}, np.ones((25, 1), dtype=bool), ("any",)
    )
    model = MODELS["small"].create(records, N_BITS, text_width=16, hidden=[16])

    def fill(name: str, n_items: int, seed: int = 0, stage: Stage | None = None) -> None:
        model.save_pretrained(folder / name / "model")
        with ch.open_store(folder / name, N_BITS, model.fingerprint(), stage) as store:
            put(store, *items(0, n_items, seed))
            store.search(np.zeros((1, 3), np.uint8), k=1)  # makes the snapshot, if it is due

    def write_on(name: str) -> ch.Store:
        store, (ids, codes, metadata) = ch.open_store(folder / name), items(n_items, n_items + 30)
        put(store, ids, codes, metadata)
        put(store, ids[:2], {"image": codes["image"][-2:]}, None)
        store.delete([f"item {row:05d}" for row in range(0, n_items, 20)])
        return store

    fill("layers", n_items + 1)
    for copy in ("older", "killed"):
        shutil.copytree(folder / "layers", folder / copy)
    write_on("layers").close()
    fill("other", n_items + 1, seed=1)
    fill("young", n_items // 20, stage=Stage(N_BITS))
    for place, seed in ((CODES, 0), ("other", 1)):
        ids, codes, metadata = items(0, n_items, seed)
        labels = np.array([[name in values["labels"] for name in LABELS] for values in metadata])
        file = ch.CodeSet(
            ids, codes, labels, N_BITS, LABELS, [values["text"] for values in metadata]
        )
        file.save(folder / place / CODES)
    index._FEWEST_CLUSTERED = 1
    fill("clusters", n_items + 1, stage=Stage(N_BITS))
    write_on("clusters").close()
    kept = write_on("killed")  # noqa: F841 -- what nobody holds is closed
    os.kill(os.getpid(), signal.SIGKILL)


def questions(store: ch.Store) -> Iterator[tuple[str, Callable[[], Any]]]:
    from channelhash.search.hits import SearchOptions
    from channelhash.search.query import search_store

    def hits(
        **query: str,
    ) -> Any:  # without their match: a share of a sample, of which a healed store draws another
        return [
            hit.as_dict() | {"match": None}
            for hit in search_store(store, SearchOptions(k=7), **query)
        ]

    yield (
        "facts",
        lambda: (len(store), store.modalities, store.n_bits, store.model, store.info()["codes"]),
    )
    yield "labels", store.label_counts
    for where in (None, *WHERE):
        yield f"ids {where}", lambda where=where: store.ids(where)
    for name, rows in items(0, 2)[1].items():
        for k, where in ((1, None), (10, None), (10**6, None), *((10, where) for where in WHERE)):
            yield (
                f"{name} {k} {where}",
                lambda n=name, r=rows, k=k, w=where: store.search(r, k, n, w),
            )
        yield f"{name} radius", lambda n=name, r=rows: store.search_radius(r, 6, n)
        if store.projected:
            yield (
                f"{name} stages",
                lambda n=name, r=rows: store.search_projections(outputs_of(r), 10, n, WHERE[0]),
            )
    yield "items", lambda: [str(item) for item in store.get(store.ids())]
    yield "like", lambda: hits(like="item 00007", by="text")
    for text in ("a dog on a beach", "the sea"):
        yield f"words {text}", lambda text=text: hits(text=text)


def answer(question: Callable[[], Any]) -> str:
    """The digest of an answer, or ``refused: …`` or ``crash: …``."""
    try:
        with np.printoptions(threshold=sys.maxsize):
            return hashlib.sha1(repr(question()).encode()).hexdigest()
    except (InputError, JobError) as error:
        return f"{'crash: two lines: ' if chr(10) in str(error) else 'refused: '}{error}"
    except Exception as error:
        return f"crash: {type(error).__name__}: {error}"


def ask(address: Path, between: Callable[[], None] = lambda: None) -> dict[str, str]:
    """Open a store, damage it in ``between``, and ask all questions."""
    opened: list[ch.Store] = []
    answers = {"open": answer(lambda: opened.append(ch.open_store(address)))}
    for store in opened:
        answer(lambda store=store: store.search(items(0, 1)[1]["image"], k=3))
        between()
        answers |= {name: answer(question) for name, question in questions(store)}
        answers["close"] = answer(store.close)
    return answers


def attacked(stores: Path, damage: Damage) -> tuple[dict[str, str], bool]:
    """All answers of a damaged copy, and whether it was healed."""
    with tempfile.TemporaryDirectory(dir=stores) as temporary:
        folder = Path(shutil.copytree(stores / damage.store, Path(temporary) / damage.store))
        address = folder / CODES if damage.store == CODES else folder
        if not damage.opened:
            damage.do(folder, stores)
        before = contents(folder, damage)
        answers = ask(address, lambda: damage.do(folder, stores) if damage.opened else None)
        healed = contents(folder, damage) != before
        ids, codes, metadata = items(90_000, 90_001, seed=2)

        def write() -> Any:
            with ch.open_store(address) as store:
                put(store, ids, codes, metadata)
                return (
                    store.search(codes["image"], k=2),
                    store.delete(["item 00007", "item 00009"]),
                    len(store),
                )

        answers["write"] = answer(write)
        if not answers["write"].startswith(("refused", "crash")):
            answers |= {f"later {name}": answer for name, answer in ask(address).items()}
        return answers, healed


def contents(folder: Path, damage: Damage) -> Any:
    """What healing would change: the damaged file, and which snapshots there are."""
    if damage.opened or damage.file.startswith("items.sqlite"):
        return None
    path = folder / damage.file
    return sorted(folder.glob("snapshot-*")), path.read_bytes() if path.is_file() else path.exists()


def outcome(expected: dict[str, str], given: dict[str, str], healed: bool) -> tuple[str, str]:
    """The worst that an answer was, and what it was."""
    worst: dict[str, str] = {}
    for question, found in given.items():
        kind = found.partition(":")[0]
        if kind != expected.get(question, "").partition(":")[0]:
            worst.setdefault(
                {"crash": "CRASH", "refused": "refused"}.get(kind, "WRONG"), f"{question}: {found}"
            )
    for name in ("CRASH", "WRONG", "refused"):
        if name in worst:
            return name, worst[name]
    return "healed" if healed else "harmless", ""


def attack_all(stores: Path, n_items: int, seed: int, count: int) -> list[tuple[Damage, str, str]]:
    """Do ``count`` damages of the matrix, drawn from each file and each kind in turn; returns the
    outcome of each.
    """
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=build, args=(stores, n_items))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (stores / "killed" / "items.sqlite-wal").exists()
    names = ["layers", "clusters", "young", "killed", CODES]
    everything = [damage for name in names for damage in damages(stores, name, seed)]
    random.Random(seed).shuffle(everything)
    alike: dict[tuple[str, str, str], list[Damage]] = {}
    for damage in everything:
        alike.setdefault((damage.store, Path(damage.file).name, damage.kind), []).append(damage)
    chosen = [damage for turn in zip_longest(*alike.values()) for damage in turn if damage][:count]
    expected: dict[str, dict[str, str]] = {}
    rows, pool = [], None
    for damage in [
        *map(Damage, {damage.store for damage in chosen}, repeat(""), repeat("")),
        *chosen,
    ]:
        pool = pool or ProcessPoolExecutor(1, context)
        try:
            answers, healed = pool.submit(attacked, stores, damage).result(SECONDS)
        except (BrokenProcessPool, TimeoutError) as error:
            for process in pool._processes.values():
                process.kill()
            pool, answers, healed = None, {"": f"crash: {error!r}"}, False
        if damage.kind:
            rows.append((damage, *outcome(expected[damage.store], answers, healed)))
        else:
            assert not [answer for answer in answers.values() if answer.startswith("crash")]
            expected[damage.store] = answers
    return rows


@pytest.mark.parametrize(
    ("n_items", "seed", "count"), [(100, 1, 4), pytest.param(600, 0, 400, marks=pytest.mark.slow)]
)
def test_every_kind_of_damage_to_every_file(tmp_path, n_items, seed, count):
    needs("train")
    rows = attack_all(tmp_path, n_items, seed, count)
    counts = Counter(outcome for _, outcome, _ in rows)
    print(f"seed {seed}: " + ", ".join(f"{counts[name]} {name}" for name in OUTCOMES))
    bad = [
        f"{outcome}: {damage}: {reason}"
        for damage, outcome, reason in rows
        if outcome in ("WRONG", "CRASH")
    ]
    assert not bad, "\n".join(bad)
    assert {"refused", "healed"} <= counts.keys() or count < 100
