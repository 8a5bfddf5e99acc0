"""Stores to damage, and the questions that each damaged one is asked; `damage.py` does the damaging."""

import gc
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import channelhash as ch
from channelhash.errors import InputError, JobError

N_BITS = 24

#: The store that is a file of codes, in a folder of the same name.
CODES = "codes.parquet"

#: What each question was answered with: "same-as" digests, "refused: …" or "crash: …".
Answers = dict[str, str]

_WHERE = (
    "label = 'dog'", "NOT label = 'cat'", "label IS NULL", "year >= 2000",
    "year BETWEEN 1995 AND 2010 OR label = 'sea'", "text LIKE '%beach%'", "sharp = TRUE", "id > 'item 00100'",
)  # fmt: skip
_TEXTS = ("a dog on a beach", "two cats", "the sea")
_LABELS, _NOUNS = ("dog", "cat", "sea", "city"), ("dog", "cat", "beach", "sea", "tree")


def items(start: int, stop: int, seed: int = 0) -> tuple[list[str], dict[str, np.ndarray], list[dict[str, object]]]:
    """Return ids, codes of both modalities and metadata of some items."""
    rows = range(start, stop)
    random = np.random.default_rng([seed, start, stop])
    codes = {name: random.integers(0, 256, (len(rows), N_BITS // 8), dtype=np.uint8) for name in ("image", "text")}
    metadata = [
        {
            "text": f"a {_NOUNS[row % 5]} and a {_NOUNS[row * 7 % 5]} on picture {row}",
            "year": 1990 + row * 31 % 33,
            "sharp": row % 3 == 0,
            "labels": [_LABELS[row % 4]] * (row % 5 > 0) + ["old"] * (row % 7 == 0),
        }
        for row in rows
    ]
    return [f"item {row:05d}" for row in rows], codes, metadata


def build_stores(folder: Path, n_items: int) -> list[str]:
    """Write stores of about ``n_items`` items into ``folder`` and return the names of those that are to be damaged.

    ``layers`` has a snapshot, what was written and removed since, and a model; ``tables`` and ``clusters`` an index
    with those in it; ``young`` no snapshot; these three keep projections; ``killed`` is what a writer left that died
    of SIGKILL; `CODES` is a file of codes. ``older`` is an older version of ``layers``, ``other`` a store of other
    items.
    """
    done = subprocess.run([sys.executable, __file__, str(folder), str(n_items)], env=environment())
    if done.returncode != -signal.SIGKILL:
        raise AssertionError(f"the process that makes the stores ended with {done.returncode}")
    if not (folder / "killed" / "items.sqlite-wal").exists():
        raise AssertionError("the killed writer has left nothing")
    return ["layers", "tables", "clusters", "young", "killed", CODES]


def _build(folder: Path, n_items: int) -> None:
    """Write all stores, and die; smaller than by default, stores get snapshots, tables and clusters."""
    from channelhash.search import index
    from channelhash.search.local import snapshots

    snapshots._LEAST_IN_SNAPSHOT = min(10_000, n_items)  # type: ignore[attr-defined]
    model = _model(folder / "encoder")
    _fill(folder / "layers", model, n_items)
    shutil.copytree(folder / "layers", folder / "older")
    shutil.copytree(folder / "layers", folder / "killed")
    _write_on(folder / "layers", n_items)
    _fill(folder / "other", model, n_items, seed=1)
    _fill(folder / "young", model, n_items // 20, projections=True)
    _save_codes(folder / CODES / CODES, n_items)
    _save_codes(folder / "other" / CODES, n_items, seed=1)
    index._WORTH = 0.0  # type: ignore[attr-defined]
    for aid, fewest, file in (
        ("tables", "FEWEST_LISTED", "table_layout"),
        ("clusters", "FEWEST_CLUSTERED", "cluster_reach"),
    ):
        setattr(index, fewest, 1)
        _fill(folder / aid, model, n_items, projections=True)
        if not list((folder / aid).glob(f"snapshot-*/*/index/{file}.npy")):
            raise AssertionError(f"no {aid} were made")
        _write_on(folder / aid, n_items)
    _write_on(folder / "killed", n_items, end=lambda store: os.kill(os.getpid(), signal.SIGKILL))


def environment() -> dict[str, str]:
    """Return the environment of a process that imports what this one imports, and leaves the other cores alone."""
    threads = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    return os.environ | threads | {"PYTHONPATH": os.pathsep.join([str(Path(ch.__file__).parents[1]), *sys.path[1:]])}


def _model(folder: Path) -> ch.HashModel:
    import torch

    from channelhash.data.records import Records
    from channelhash.models import MODELS

    torch.manual_seed(0)
    texts = tuple(f"a {a} and a {b} on picture" for a in _NOUNS for b in _NOUNS)
    names = tuple(map(str, range(len(texts))))
    records = Records(names, {"text": texts}, np.ones((len(texts), 1), dtype=bool), ("any",))
    model = MODELS["small"].create(records, N_BITS, text_width=16, hidden=[16])
    model.save_pretrained(folder)
    return model


def outputs_of(codes: np.ndarray) -> np.ndarray:
    """Return outputs that have these codes."""
    return np.where(ch.codes.unpack(codes, N_BITS), 1, -1) * np.random.default_rng(3).uniform(0.1, 1, N_BITS)


def _projections(store: ch.Store, codes: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    return {name: outputs_of(rows) for name, rows in codes.items()} if store.projected else None


def _fill(folder: Path, model: ch.HashModel, n_items: int, seed: int = 0, projections: bool = False) -> None:
    ids, codes, metadata = items(0, n_items, seed)
    shutil.copytree(folder.parent / "encoder", folder / "model")
    store = ch.open_store(folder, N_BITS, model.fingerprint(), projections)
    store.add(ids, codes, metadata=metadata, projections=_projections(store, codes))
    store.search(codes["image"][:1], k=1)  # makes the snapshot, if it is due
    store.close()
    gc.collect()  # connections go with their last cursor, and with them their files


def _save_codes(file: Path, n_items: int, seed: int = 0) -> None:
    ids, codes, metadata = items(0, n_items, seed)
    labels = np.array([[name in values["labels"] for name in _LABELS] for values in metadata])  # type: ignore[operator]
    texts = [str(values["text"]) for values in metadata]
    file.parent.mkdir(exist_ok=True)
    ch.CodeSet(ids, codes, labels, N_BITS, _LABELS, texts).save(file)


def _write_on(folder: Path, n_items: int, end: Callable[[ch.Store], None] = ch.Store.close) -> None:
    """Add, replace and delete a few of the items that `_fill` wrote."""
    store = ch.open_store(folder)
    few = max(5, n_items // 20)
    ids, codes, metadata = items(n_items, n_items + few)
    store.add(ids, codes, metadata=metadata, projections=_projections(store, codes))
    image, text = {"image": codes["image"][-2:]}, {"text": codes["text"][:3]}
    store.upsert(ids[:2], image, projections=_projections(store, image))
    store.delete([f"item {row:05d}" for row in range(0, n_items, 20)])
    changed = [f"item {row:05d}" for row in range(1, 4)]
    store.upsert(changed, text, metadata=[{"year": 1850}] * 3, projections=_projections(store, text))
    end(store)


def ask(folder: Path, every_item: bool, between: Callable[[], None] | None = None) -> Answers:
    """Open a store and ask all questions.

    Args:
        folder: the store.
        every_item: ask for every item by id, not for some.
        between: called when the store is open and has answered a first search; the questions follow.
    """
    answers: Answers = {}
    opened: list[ch.Store] = []
    _answer(answers, "open", lambda: opened.append(ch.open_store(folder)))
    if opened:
        store = opened[0]
        if between:
            _answer(Answers(), "", lambda: store.search(items(0, 1)[1]["image"], k=3))
            between()
        for name, question in _questions(store, every_item):
            _answer(answers, name, question)
        _answer(answers, "close", lambda: store.close())
    return answers


def write_on_and_ask(folder: Path) -> Answers:
    """Add an item, delete another, and ask again, also after the store was opened anew."""
    answers: Answers = {}
    ids, codes, metadata = items(90_000, 90_001, seed=2)

    def write() -> Any:
        store = ch.open_store(folder)
        try:
            store.add(ids, codes, metadata=metadata, projections=_projections(store, codes))
            found = store.search(codes["image"], k=2)
            return found.ids, store.delete(["item 00007", "item 00009"]), len(store)
        finally:
            store.close()

    _answer(answers, "write", write)
    if not answers["write"].startswith(("refused", "crash")):
        answers |= {f"after writing, {name}": answer for name, answer in ask(folder, every_item=False).items()}
    return answers


def _questions(store: ch.Store, every_item: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    from channelhash.search.query import SearchOptions, search_store

    queries = {name: np.concatenate([codes, ~codes]) for name, codes in items(0, 2)[1].items()}
    yield "count", lambda: (len(store), store.modalities, store.n_bits, store.model, store.writable)
    yield "info", lambda: store.info()["codes"]
    yield "labels", store.label_counts
    for where in (None, *_WHERE):
        yield f"ids where {where}", lambda where=where: store.ids(where)
    for name, rows in queries.items():
        for k in (1, 10, 1_000_000):
            yield f"{name}, k = {k}", lambda name=name, rows=rows, k=k: _found(store.search(rows, k, name))
        for where in _WHERE:
            yield (
                f"{name}, 10 where {where}",
                lambda name=name, rows=rows, where=where: _found(store.search(rows, 10, name, where)),
            )
        for r, limit in ((0, None), (6, None), (10, 7)):
            yield (
                f"{name}, radius {r}",
                lambda name=name, rows=rows, r=r, limit=limit: _found(store.search_radius(rows, r, name, limit=limit)),
            )
        if store.projected:
            rows = outputs_of(rows)
            for where in (None, *_WHERE[:2]):
                yield (
                    f"{name}, two stages where {where}",
                    lambda name=name, rows=rows, where=where: _found(store.search_projections(rows, 10, name, where)),
                )
    yield "some items", lambda: _items(store, store.ids()[::50])
    if every_item:
        yield "every item", lambda: _items(store, store.ids())
    yield "like", lambda: _hits(search_store(store, SearchOptions(k=7), like="item 00007", by="text"))
    for text in _TEXTS:
        yield f"words {text}", lambda text=text: _hits(search_store(store, SearchOptions(k=7), text=text))


def _found(found: Any) -> Any:
    return found.ids, [distances.tolist() for distances in found.distances]


def _items(store: ch.Store, ids: list[str]) -> Any:
    return [
        (
            item.id,
            *(sorted((name, row.tobytes()) for name, row in rows.items()) for rows in (item.codes, item.projections)),
            sorted(item.metadata.items()),
        )
        for item in store.get(ids)
    ]


def _hits(hits: Any) -> Any:
    """Return hits without their match: a share of a random sample, and a healed store draws another sample."""
    return [hit.as_dict() | {"match": None} for hit in hits]


def _answer(answers: Answers, name: str, question: Callable[[], Any]) -> None:
    try:
        answers[name] = hashlib.sha1(repr(question()).encode()).hexdigest()
    except (InputError, JobError) as error:
        answers[name] = f"{'crash: of two lines: ' if chr(10) in str(error) else 'refused: '}{error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        answers[name] = f"crash: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


if __name__ == "__main__":
    _build(Path(sys.argv[1]), int(sys.argv[2]))
