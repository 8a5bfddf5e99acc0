"""Pages of answers against one long ranking."""

import numpy as np
import pytest

from channelhash.codes import binarize, pack
from channelhash.codes.code_set import CodeSet
from channelhash.search import open_store
from channelhash.search.hits import DEPTH, Query, SearchOptions, answer
from channelhash.search.sqlite.store import open_codes
from channelhash.serve.search import answer_page
from channelhash.utils.seeds import generator

N, MOST = 300, 250


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    drawn = generator(0, "pages")
    outputs = {modality: drawn.standard_normal((N, 16)).astype(np.float32) for modality in ("image", "text")}
    outputs["image"][1:40:3] = outputs["image"][0:39:3]  # exact duplicates
    texts = [" ".join(drawn.choice(["red", "green", "blue", "sea", "dog"], 3)) for _ in range(N)]
    store = open_store(tmp_path_factory.mktemp("pages") / "store", n_bits=16, projections=True)
    codes = {modality: pack(binarize(rows)) for modality, rows in outputs.items()}
    store.add([f"{n:03}" for n in range(N)], codes, metadata=[{"text": text} for text in texts], projections=outputs)
    return store


def ask(store, words="", bits_alone=False) -> Query:
    item = store.get(["000"])[0]
    outputs = None if bits_alone else item.projections["image"].astype(np.float32)
    return Query(item.codes["image"], outputs, "image", words)


QUESTIONS = {
    "projections": ("", False, SearchOptions()),
    "bits": ("", True, SearchOptions()),
    "all there is": ("red sea", False, SearchOptions()),
    "words": ("red sea", False, SearchOptions(by="words")),
    "all within a radius": ("red", False, SearchOptions(by="all", radius=7)),
    "ranked again": ("", False, SearchOptions(rerank=30, modality="image")),
    "folded": ("", False, SearchOptions(collapse=0)),
    "all there is, folded": ("red sea", False, SearchOptions(collapse=1)),
    "narrowed": ("", False, SearchOptions(where="id < '150'")),
}


@pytest.mark.parametrize("k", [60, DEPTH])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("leave_out", [None, "000"])
def test_pages_are_cut_out_of_one_ranking_with_every_answer_once(store, question, k, leave_out):
    words, bits_alone, options = QUESTIONS[question]
    query, found = ask(store, words, bits_alone), []
    for offset in range(0, MOST, k):
        of_page = min(k, MOST - offset)
        page = answer_page(store, query, SearchOptions(**{**vars(options), "k": of_page}), offset, MOST, leave_out)
        assert len(page.hits) <= of_page
        found += [hit.id for hit in page.hits]
    assert len(set(found)) == len(found)
    whole = answer_page(store, query, SearchOptions(**{**vars(options), "k": MOST}), 0, MOST, leave_out)
    assert [hit.id for hit in whole.hits] == found
    limited = SearchOptions(**{**vars(options), "k": DEPTH, "limit": DEPTH})
    best = [hit.id for hit in answer(store, query, limited) if hit.id != leave_out]
    if options.collapse is None:
        assert found[: len(best)] == best
        everything = SearchOptions(**{**vars(options), "k": MOST, "limit": MOST})
        assert set(found) >= {hit.id for hit in answer(store, query, everything)} - {leave_out}


def test_an_item_that_is_left_out_takes_its_near_duplicates_along(store):
    query = ask(store)
    page = answer_page(store, query, SearchOptions(k=10, collapse=0), leave_out="001")
    assert page.alike == ["000"]
    assert not {"000", "001"} & {hit.id for hit in page.hits}
    assert len(page.hits) == 10
    assert answer_page(store, query, SearchOptions(k=10), leave_out="001").alike is None
    assert answer_page(store, query, SearchOptions(k=10), leave_out="001").hits[0].id == "000"


def test_behind_more_duplicates_than_are_looked_at_first_come_the_others():
    codes = np.array([[0]] * DEPTH + [[15], [240], [255]], np.uint8)
    ids = [f"{n:03}" for n in range(len(codes))]
    with open_codes(CodeSet(ids, {"image": codes, "text": codes}, None, n_bits=8)) as store:
        page = answer_page(store, Query(codes[0], words="sea"), SearchOptions(collapse=0, k=10), most=MOST)
        assert [hit.id for hit in page.hits] == ["000", *ids[DEPTH:]]
