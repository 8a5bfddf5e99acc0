"""One order of all answers to a question: its first ones are the same whatever is asked for, and
pages are its parts.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pytest
from safetensors.numpy import save

import channelhash as ch
from channelhash.codes import binarize, pack
from channelhash.codes.stage import Stage
from channelhash.models.description import write_model
from channelhash.search import answer as module, match
from channelhash.search.hits import (
    Hit,
    Hits,
    Query,
    SearchOptions,
    answer,
    search_hits,
    sort_by_date,
)
from channelhash.search.query import search_store
from channelhash.search.rankings import choose_rankings
from channelhash.search.sqlite.store import open_codes

N_BITS = 24
WORDS = ("red", "green", "sea", "dog", "a", "night", "rover7")
#: More than any store here has.
ALL = 10_000
OPTIONS = {
    "all there is": {},
    "images": {"by": "image"},
    "texts": {"by": "text"},
    "words": {"by": "words"},
    "within a radius": {"radius": 10},
    "all within a radius": {"radius": 10, "by": "all"},
    "folded": {"collapse": 2},
    "folded by pictures": {"collapse": True},
    "folded images": {"collapse": 2, "by": "image"},
    "narrowed": {"where": "year < 2010"},
    "without one": {"leave_out": "003"},
    "without one and its copies": {"leave_out": "003", "collapse": 3},
    "what fits": {"fitting": True},
    "what fits within a radius": {"fitting": True, "radius": 11},
}


@dataclass
class Drawn:
    """A store and a question to it."""

    store: ch.Store
    query: Query


@pytest.fixture(scope="module")
def draw(tmp_path_factory) -> Iterator[Callable[[int, int], Drawn]]:
    """Return what draws a store of a size, by a seed: of images, some with texts, with or without
    projections and a model that knows what fits.
    """
    drawn: dict[tuple[int, int], Drawn] = {}

    def make(seed: int, n: int) -> Drawn:
        if (seed, n) in drawn:
            return drawn[seed, n]
        random = np.random.default_rng(seed)
        folder = tmp_path_factory.mktemp("drawn") / "store"
        projected, knows_fit = seed % 2 == 0, seed % 4 == 0
        if knows_fit:
            (folder / "model").mkdir(parents=True)
            architecture = {"encoder": "photo", "codes": "learned"}
            write_model(
                folder / "model", save, {}, {"name": "fitted", "architecture": architecture}
            )
        store = ch.open_store(folder, n_bits=N_BITS, stage=Stage(N_BITS) if projected else None)
        outputs = {name: drawn_outputs(random, n) for name in ("image", "text")}
        texted = random.random(n) < (1.0, 0.5, 0.1)[seed % 3]
        for has_text in (True, False):
            rows = np.flatnonzero(texted == has_text)
            kept = outputs if has_text else {"image": outputs["image"]}
            store.add(
                [f"{row:03}" for row in rows],
                {name: pack(binarize(values[rows])) for name, values in kept.items()},
                metadata=[metadata_of(random, row, has_text) for row in rows],
                projections={name: values[rows] for name, values in kept.items()}
                if projected
                else None,
            )
        notes = [f"note{row}" for row in range(n // 4)]
        values = drawn_outputs(random, len(notes))
        store.add(
            notes,
            {"text": pack(binarize(values))},
            metadata=[{"text": f"a remark about {name}"} for name in notes],
            projections={"text": values} if projected else None,
        )
        drawn[seed, n] = Drawn(store, drawn_question(random))
        return drawn[seed, n]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match, "read_fits", lambda corrected: {str(N_BITS): [-3.5, 12.0, 0.5, -0.1]})
        patch.setattr(match, "_CLEAR", {N_BITS: 0.5})
        yield make


def drawn_outputs(random: np.random.Generator, n: int) -> np.ndarray:
    """Return outputs in bunches, some equal."""
    centres = random.normal(size=(5, N_BITS))
    values = centres[random.integers(0, 5, n)] + 0.7 * random.normal(size=(n, N_BITS))
    values[1:40:3] = values[0:39:3][: len(values[1:40:3])]
    return values.astype(np.float32)


def metadata_of(random: np.random.Generator, row: int, has_text: bool) -> dict:
    text = " ".join(random.choice(WORDS, 3)) if has_text else ""
    return {"text": text, "year": 2000 + int(row) % 20}


def drawn_question(random: np.random.Generator) -> Query:
    outputs = random.normal(size=N_BITS).astype(np.float32)
    words = " ".join(random.choice(WORDS, random.integers(1, 3), replace=False))
    return Query(pack(binarize(outputs[None]))[0], outputs, "text", words)


def decided(hits: Hits) -> tuple:
    """What must not depend on which answers are asked for."""
    return hits.close, hits.best_fit, hits.note, hits.suggestion


FAST = [0, 1]
SEEDS = [*FAST, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n", "depth"), [(12, 100), (40, 7)])
def test_the_first_answers_are_the_same_for_every_k_and_pages_are_the_whole(
    draw, seed, n, depth, name, monkeypatch
):
    monkeypatch.setattr(module, "DEPTH", depth)
    monkeypatch.setattr(module, "_SECOND", max(20, depth))
    drawn, options = draw(seed, n), SearchOptions(**OPTIONS[name])
    whole = answer(drawn.store, drawn.query, replace(options, k=ALL))
    shown = [name for hit in whole for name in (hit.id, *(hit.duplicates or ()))]
    assert len(set(shown)) == len(shown)
    everything = expected(drawn.store, drawn.query, options)
    if options.collapse is not None and depth < n:
        assert set(shown) <= everything
        check_no_copies(whole, options)
    elif not options.fitting:
        assert set(shown) == everything
    for k in (1, 3, int(np.random.default_rng([seed, n]).integers(4, n))):
        pages: list[Hit] = []
        for offset in range(0, len(whole) + k, k) if k > 1 else (0,):
            page = answer(drawn.store, drawn.query, replace(options, k=k, limit=k, offset=offset))
            assert decided(page) == decided(whole)
            pages += page
        assert pages == whole[: len(pages)]
        assert k == 1 or len(pages) == len(whole)


def check_no_copies(hits: Hits, options: SearchOptions) -> None:
    """Check that no answer should have been folded into another."""
    usual = module.default_radius(N_BITS)
    radius = usual if options.collapse is True else options.collapse
    codes = np.array([hit.code for hit in hits], np.uint8).reshape(len(hits), -1)
    distances = ch.codes.hamming_distances(codes, codes)
    assert (distances[~np.eye(len(hits), dtype=bool)] > radius).all()


def expected(store: ch.Store, query: Query, options: SearchOptions) -> set[str]:
    """The ids of all items that a question with these options is about."""
    rankings = choose_rankings(store, query, options)
    names: set[str] = set()
    for modality in rankings:
        if modality == "words":
            coverage = 0.0 if len(rankings) == 1 else 1.0
            found = store.search_words(query.words, ALL, options.where, (), coverage).ids
            names |= set(found) if options.radius is None else set()
        elif options.radius is not None:
            radius = options.radius
            names |= set(
                store.search_radius(query.code[None], radius, modality, options.where).ids[0]
            )
        else:
            names |= set(store.codes(modality, options.where)[0])
    if options.leave_out is None:
        return names
    left_out = answer(store, query, replace(options, k=ALL)).alike or []
    return names - {options.leave_out, *left_out}


@pytest.mark.parametrize("seed", [0, 4, 8])
def test_what_fits_comes_first_however_deep_it_lies(draw, seed, monkeypatch):
    store, query = draw(seed, 60).store, draw(seed, 60).query
    hits = answer(store, query, SearchOptions(k=ALL))
    doubts = [match.doubt(hit.fit) for hit in hits]
    assert doubts == sorted(doubts)
    assert {hits.likely, hits.found} <= {None, doubts.count(0), len(doubts) - doubts.count(2)}
    likely = answer(store, query, SearchOptions(k=ALL, fitting=True))
    assert likely == [hit for hit in hits if hit.fits]
    assert likely.unlikely == (len(likely) < len(hits))
    monkeypatch.setattr(module, "DEPTH", 7)
    hits = answer(store, query, SearchOptions(k=ALL, by="image"))
    fits = [hit.fits for hit in hits]
    assert fits == sorted(fits, reverse=True)
    assert {hit.fit for hit in hits} != {None}


@pytest.mark.parametrize("n", [module.DEPTH, module.DEPTH + 1, 2 * module.DEPTH])
def test_behind_more_duplicates_than_are_looked_at_first_come_the_others(n):
    codes = np.array([[0]] * n + [[15], [240], [255]], np.uint8)
    ids = [f"{n:03}" for n in range(len(codes))]
    sets = ch.CodeSet(ids, {"image": codes, "text": codes}, None, n_bits=8)
    with closing(open_codes(sets)) as store:
        query = Query(codes[0], words="sea")
        hits = answer(store, query, SearchOptions(collapse=0, k=10))
        assert [hit.id for hit in hits] == ["000", *ids[n:]]
        assert hits[0].duplicates == ids[1 : module.DEPTH]


def test_an_item_that_is_left_out_takes_its_near_duplicates_along(draw):
    store = draw(0, 40).store
    item = store.get(["003"])[0]
    query = Query.of_item(item, "image")
    folded = search_hits(store, query, SearchOptions(collapse=0, leave_out="003"))
    assert folded.alike == ["004"]
    assert not {"003", "004"} & {hit.id for hit in folded}
    plain = search_hits(store, query, SearchOptions(leave_out="003"))
    assert (plain.alike, plain[0].id) == (None, "004")


def deleting_while_it_is_read(store: ch.Store, names: set[str], monkeypatch) -> None:
    """Let a store delete items as soon as somebody reads what was found."""
    read = store.get

    def delete_first(ids, missing_ok=False):
        store.delete([name for name in names if name in ids])
        return read(ids, missing_ok)

    monkeypatch.setattr(store, "get", delete_first)


@pytest.mark.parametrize("name", [name for name in OPTIONS if "fit" not in name])
def test_what_others_delete_meanwhile_is_left_out_and_the_order_stays(name, tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    outputs = {modality: drawn_outputs(random, 40) for modality in ("image", "text")}
    ids = [f"{row:03}" for row in range(40)]
    codes = {modality: pack(binarize(rows)) for modality, rows in outputs.items()}
    store = ch.open_store(tmp_path / "store", n_bits=N_BITS, stage=Stage(N_BITS))
    store.add(ids, codes, None, [metadata_of(random, row, True) for row in range(40)], outputs)
    store.add(["no text"], codes["image"][:1], projections=outputs["image"][:1])
    options, query = SearchOptions(**OPTIONS[name], k=8, limit=8), drawn_question(random)
    whole = [hit.id for hit in answer(store, query, replace(options, k=ALL, limit=None))]
    gone = set(whole[1:6:2])
    with monkeypatch.context() as meanwhile:
        deleting_while_it_is_read(store, gone, meanwhile)
        hits = answer(store, query, options)
    found = [hit.id for hit in hits]
    assert not gone & {other for hit in hits for other in (hit.id, *(hit.duplicates or ()))}
    assert len(found) == min(8, len(whole) - len(gone)) or options.collapse is not None
    if options.collapse is None:
        assert found == [other for other in whole if other not in gone][:8]
    store.close()


def test_dates_alone_are_listed_page_by_page_without_what_is_deleted(tmp_path, monkeypatch):
    with ch.open_store(tmp_path / "store", n_bits=8) as store:
        dates = [{"date": f"2019-07-{day:02}"} for day in range(1, 13)]
        store.add([f"{n:02}" for n in range(12)], np.zeros((12, 1), np.uint8), metadata=dates)

        def page(k, offset):
            hits = search_store(store, SearchOptions(k=k, offset=offset), text="July 2019")
            assert [phrase["kind"] for phrase in hits.narrowed()] == ["date"]
            return [hit.id for hit in hits]

        whole = page(12, 0)
        assert whole == [f"{n:02}" for n in range(11, -1, -1)]
        assert [name for offset in range(0, 15, 5) for name in page(5, offset)] == whole
        deleting_while_it_is_read(store, {"10"}, monkeypatch)
        assert page(3, 0) == ["11", "09"]


def test_items_without_a_date_come_last_in_either_order():
    random = np.random.default_rng(0)
    undated = ("", "soon", "0000-00-00 00:00:00", "2019-13")
    for _ in range(20):
        dates = random.choice([*undated, "2019-07", "2020-01-01", "1999-12-31 10:00:00"], 9)
        hits = [Hit(str(n), n, "", [], "", {"taken": str(date)}) for n, date in enumerate(dates)]
        written = sorted(date for date in dates.tolist() if date not in undated)
        for newest_first in (True, False):
            ordered = [hit.metadata["taken"] for hit in sort_by_date(hits, newest_first)]
            assert ordered[: len(written)] == (written[::-1] if newest_first else written)
            assert set(ordered[len(written) :]) <= set(undated)


@dataclass
class FixedJudge:
    """A judge that says of the nearest items what a test wants."""

    fit_by_place: tuple[float, ...] = ()
    close: bool | None = None

    @property
    def knows_fit(self) -> bool:
        return bool(self.fit_by_place)

    def fits(self, cosines):
        return list(self.fit_by_place[: len(cosines)])

    def is_close(self, distances, cosines=None):
        return self.close

    def matches(self, distances):
        return [None] * len(distances)


@pytest.fixture
def judge(monkeypatch) -> FixedJudge:
    fixed = FixedJudge()
    monkeypatch.setattr(module, "Judge", lambda *_: fixed)
    return fixed


def outputs_at(*distances: int) -> np.ndarray:
    """Return outputs that differ from those of `QUERY` in so many bits."""
    return np.array([[1.0] * bits + [-1.0] * (N_BITS - bits) for bits in distances], np.float32)


QUERY = Query(pack(binarize(outputs_at(0)))[0], outputs_at(0)[0], "text")
BY_BITS = replace(QUERY, outputs=None)


@pytest.fixture
def keep(tmp_path):
    """Return what makes a store of id -> modality -> distance to `QUERY`, and texts by id."""
    with ch.open_store(tmp_path / "store", n_bits=N_BITS, stage=Stage(N_BITS)) as store:

        def make(items: dict[str, dict[str, int]], **texts: str) -> ch.Store:
            for name, distances in items.items():
                outputs = {modality: outputs_at(bits) for modality, bits in distances.items()}
                codes = {modality: pack(binarize(rows)) for modality, rows in outputs.items()}
                metadata = [{"text": texts.get(name, ""), "image": f"{name}.jpg"}]
                store.add([name], codes, metadata=metadata, projections=outputs)
            return store

        yield make


@pytest.mark.parametrize(("fit", "close"), [(0.149, False), (0.15, True)])
def test_answers_are_close_if_one_is_likely_enough_to_fit(keep, judge, fit, close):
    judge.fit_by_place = (0.1, fit)
    judge.close = not close  # which does not count
    hits = answer(keep({"a": {"image": 1}, "b": {"image": 9}}), QUERY)
    assert hits.close is close
    assert hits.best_fit == fit


@pytest.mark.parametrize(
    ("nearest", "words", "by", "close"),
    [
        pytest.param(True, "zebra", None, True, id="the nearest codes are close"),
        pytest.param(False, "", None, False, id="no words help far codes"),
        pytest.param(False, "red sea", None, True, id="an answer has all words"),
        pytest.param(False, "red zebra", None, False, id="an answer has one of two words"),
        pytest.param(None, "red sea", None, None, id="all words do not say what is close"),
        pytest.param(None, "zebra", "words", False, id="no answer by words alone"),
        pytest.param(None, "sea", "words", None, id="an answer by words alone"),
    ],
)
def test_without_fits_the_nearest_codes_or_all_words_are_close(
    keep, judge, nearest, words, by, close
):
    store = keep({"a": {"image": 1}, "b": {"image": 9}}, b="the red sea")
    judge.close = nearest
    assert answer(store, replace(QUERY, words=words), SearchOptions(by=by)).close is close


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("z", 1, 4), ("a", 2, 3), id="by distance"),
        pytest.param(("a", 2, 1), ("z", 1, 2), id="then by id"),
    ],
)
def test_equal_scores_of_fused_rankings(keep, first, second):
    items = {name: {"image": image, "text": text} for name, image, text in (second, first)}
    hits = answer(keep(items), BY_BITS, SearchOptions(by="all", collapse=False))
    assert [hit.id for hit in hits] == [first[0], second[0]]


@pytest.mark.parametrize("words", ["", "sea"])
def test_an_item_without_a_text_loses_nothing_in_rankings_of_texts(keep, words):
    items = {"image": {"image": 0}, "both": {"image": 1, "text": 0}, "far": {"image": 2, "text": 9}}
    query = replace(BY_BITS, words=words)
    options = SearchOptions(by="all", collapse=False)
    hits = answer(keep(items, both="sea", far="sea"), query, options)
    assert [hit.id for hit in hits] == ["image", "both", "far"]


def test_an_item_that_only_texts_have_found_is_judged_by_its_image(keep, judge, monkeypatch):
    monkeypatch.setattr(module, "DEPTH", 1)
    judge.fit_by_place = (0.7,)
    store = keep({"a": {"image": 0, "text": 5}, "b": {"image": 6, "text": 0}})
    hits = answer(store, QUERY, SearchOptions(by="all", collapse=False, k=2))
    assert [hit.fit for hit in hits] == [0.7, 0.7]


def test_copies_are_folded_into_the_first_that_fits(keep, judge):
    judge.fit_by_place = (0.1, 0.9)
    [hit] = answer(keep({"a": {"image": 0}, "b": {"image": 1}}), QUERY, SearchOptions(collapse=1))
    assert hit.id == "b"
    assert hit.duplicates == ["a"]


@pytest.mark.parametrize("k", [1, 3])
def test_a_copy_of_an_earlier_depth_does_not_come_back(keep, monkeypatch, k):
    monkeypatch.setattr(module, "DEPTH", 1)
    monkeypatch.setattr(module, "_SECOND", 2)
    store = keep({"a": {"image": 0}, "copy": {"image": 0}, "other": {"image": 7}})
    pages = []
    for offset in range(0, 3, k):
        options = SearchOptions(collapse=0, k=k, offset=offset, modality="image")
        pages += [(hit.id, hit.duplicates) for hit in answer(store, BY_BITS, options)]
    assert pages == [("a", []), ("other", [])]
