"""What a distance means: near answers to questions that the store has items for, nothing close for
others.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save

import channelhash as ch
from channelhash.codes.hubs import Bank
from channelhash.codes.stage import Stage
from channelhash.models.description import write_model
from channelhash.models.linear_maps import cca_itq
from channelhash.search import match
from channelhash.search.hits import Query, SearchOptions, answer, search_hits
from channelhash.search.match import _FEWEST, FITS, NEAREST, Judge, find_reference
from channelhash.search.question import query_like
from channelhash.search.sqlite.store import open_codes

N, N_BITS, TOPICS = 1200, 64, 12


@pytest.fixture(scope="module")
def outputs():
    """Images and captions of things of 12 kinds by maps that know pairs: 1,200 of a store, 200
    held-out captions.

    Kinds share directions; details are an item's own. Nonsense, the last, is as large and of no
    kind.
    """
    random = np.random.default_rng(0)
    kinds = random.normal(size=(TOPICS, 24))
    details = kinds[random.integers(0, TOPICS, N + 200)] + 0.4 * random.normal(size=(N + 200, 24))
    image = details @ random.normal(size=(24, 60)) + random.normal(size=(N + 200, 60))
    into_text = random.normal(size=(24, 40))
    text = details @ into_text + random.normal(size=(N + 200, 40))
    nonsense = random.normal(size=(200, 24)) * details.std() @ into_text + random.normal(
        size=(200, 40)
    )
    maps = cca_itq({"image": image[:N], "text": text[:N]}, N_BITS, seed=0)
    stored = {"image": maps["image"](image[:N]), "text": maps["text"](text[:N])}
    return stored, maps["text"](text[N:]), maps["text"](nonsense)


@pytest.fixture(scope="module")
def world(outputs):
    """As a store of codes, and codes of the captions and the nonsense."""
    stored, held_out, nonsense = outputs
    codes = {name: ch.codes.pack(rows >= 0) for name, rows in stored.items()}
    store = open_codes(ch.CodeSet([f"{row:04}" for row in range(N)], codes, None, N_BITS))
    return store, ch.codes.pack(held_out >= 0), ch.codes.pack(nonsense >= 0)


def test_held_out_captions_are_close_and_nonsense_is_not(world):
    store, *questions = world
    captions, nonsense = (
        [search_hits(store, Query(code, modality="text")).close for code in of] for of in questions
    )
    assert np.mean(captions) >= 0.92
    assert np.mean(nonsense) <= 0.25


def test_match_is_the_share_of_random_items_at_least_as_near(world):
    """Against all pairs of captions and other images, counted literally."""
    store, held_out, _ = world
    ids, images = store.codes("image")
    _, texts = store.codes("text")
    foreign = ch.codes.hamming_distances(texts, images)[~np.eye(len(ids), dtype=bool)]
    hits = search_hits(store, Query(held_out[0], modality="text"), SearchOptions(k=len(ids)))
    for hit in hits[::200]:
        assert hit.match == pytest.approx((foreign <= hit.distance).mean(), abs=0.03)
    matches = [hit.match for hit in hits]
    assert matches == sorted(matches)
    assert 0 <= matches[0] < 0.05
    assert matches[-1] > 0.99


def test_the_same_store_says_the_same_and_a_grown_one_is_asked_anew(tmp_path, world):
    store, held_out, _ = world
    ids, images = store.codes("image")
    texts = store.codes("text")[1]
    with ch.open_store(tmp_path / "s", n_bits=N_BITS) as other:
        other.add(ids, {"image": images, "text": texts})
        query = Query(held_out[3], modality="text")
        assert search_hits(other, query) == search_hits(store, query)
        first = find_reference(other, "text", "image")
        other.delete(ids[:50])
        assert find_reference(other, "text", "image") is first
        other.delete(ids[50:200])
        assert find_reference(other, "text", "image").count <= N - 150


def test_without_enough_items_that_ask_nobody_knows_what_is_close():
    few = _FEWEST - 1
    codes = np.random.default_rng(0).integers(0, 256, (few, 2), dtype=np.uint8)
    store = open_codes(ch.CodeSet([f"{row:03}" for row in range(few)], {"image": codes}, None, 16))
    for query in (query_like(store, "000"), Query(codes[0], modality="text"), Query(codes[0])):
        hits = search_hits(store, query, SearchOptions(k=few))
        assert hits.close is None
        shares = [sum(other.distance <= hit.distance for other in hits) / few for hit in hits]
        assert [hit.match for hit in hits] == pytest.approx(shares)


def test_a_fused_answer_is_close_by_the_searched_codes(tmp_path, world):
    """Captions are nearer to a question than images are, and say nothing about how near an image
    should be.
    """
    stored, held_out, nonsense = world
    ids, images = stored.codes("image")
    store = ch.open_store(tmp_path / "s", n_bits=N_BITS)
    texts = [{"text": f"thing {row % 7} Rover{row}"} for row in range(N)]
    store.add(ids, {"image": images, "text": stored.codes("text")[1]}, metadata=texts)

    def share_of_close(codes):
        queries = [Query(code, modality="text", words="unheard") for code in codes]
        return np.mean([answer(store, query).close for query in queries])

    assert share_of_close(nonsense) <= 0.25
    assert share_of_close(held_out) >= 0.92
    store.close()


def drawn_codes(random: np.random.Generator, n: int) -> np.ndarray:
    """Return packed codes of 16 bits in four bunches: many distances are equal."""
    centres = random.integers(0, 2, (4, 16))
    flips = random.random((n, 16)) < 0.15
    return ch.codes.pack(centres[random.integers(0, 4, n)] ^ flips)


def limits_of(codes: np.ndarray) -> list[float]:
    """Return the mean distance of the first 1 to 10 other items that 3 % of the items exceed."""
    n = len(codes)
    means = []
    for row in range(n):
        others = np.delete(codes, row, axis=0)
        nearest = sorted(ch.codes.hamming_distances(codes[row][None], others)[0].tolist())
        means.append([sum(nearest[:count]) / count for count in range(1, NEAREST + 1)])
    place = math.ceil(0.97 * (n - 1))
    return [sorted(mean[count] for mean in means)[place] for count in range(NEAREST)]


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_is_close_if_it_is_as_near_as_the_stores_own_answers(seed):
    random = np.random.default_rng([62, seed])
    n = int(random.integers(_FEWEST + 2, 180))
    codes = drawn_codes(random, n)
    limits = limits_of(codes)
    store = open_codes(ch.CodeSet([f"{row:03}" for row in range(n)], {"image": codes}, None, 16))
    seen = set()
    for row in range(n):
        flips = np.zeros(16, int)
        flips[random.permutation(16)[: row % 8]] = 1
        query = Query(codes[row] ^ ch.codes.pack(flips[None])[0], modality="image")
        distances = sorted(ch.codes.hamming_distances(query.code[None], codes)[0].tolist())
        for radius in (None, int(random.integers(0, 4))):
            found = [bits for bits in distances if radius is None or bits <= radius][:NEAREST]
            mean = np.mean(found) if found else None
            expected = None if mean is None else bool(mean <= limits[len(found) - 1])
            assert search_hits(store, query, SearchOptions(radius=radius)).close is expected
            seen.add((expected, mean == limits[len(found) - 1]))
    assert {(True, True), (True, False), (False, False), (None, False)} <= seen


@pytest.mark.parametrize("seed", range(3))
def test_a_far_answer_is_close_if_it_has_all_words_of_the_question(seed):
    random = np.random.default_rng([63, seed])
    n = int(random.integers(_FEWEST + 2, 140))
    codes = drawn_codes(random, n)
    texts = [f"thing{row % 30} rover{row}" for row in range(n)]
    store = open_codes(
        ch.CodeSet([f"{row:03}" for row in range(n)], {"image": codes}, None, 16, texts=texts)
    )
    seen = set()
    for _ in range(60):
        far = Query(random.integers(0, 256, 2, dtype=np.uint8), modality="image")
        is_near = answer(store, far).close
        row = int(random.integers(n))
        other = row if random.random() < 0.5 else int(random.integers(n))
        words = [f"rover{row}", f"thing{other % 30}", *["unheard"] * int(random.random() < 0.2)]
        has_all = any(set(words) <= set(text.split()) for text in texts)
        fused = answer(store, replace(far, words=" ".join(words)))
        assert fused.close is (is_near or has_all)
        seen.add((is_near, has_all))
    assert len(seen) == 4
    for words, expected in (("rover3", None), ("unheard", False)):
        alone = Query(np.zeros(0, np.uint8), words=words)
        assert answer(store, alone, SearchOptions(by="words")).close is expected


def test_cosines_of_projections_tell_nonsense_better(tmp_path, outputs):
    stored, held_out, nonsense = outputs
    store = ch.open_store(tmp_path / "s", n_bits=N_BITS, stage=Stage(N_BITS))
    codes = {name: ch.codes.pack(rows >= 0) for name, rows in stored.items()}
    store.add([f"{row:04}" for row in range(N)], codes, projections=stored)
    reference = find_reference(store, "text", "image")

    def share_of_close(rows):
        cosines = store.search_projections(rows, NEAREST).keys
        return np.mean([reference.is_close([0], scores.tolist()) for scores in cosines])

    assert share_of_close(held_out) >= 0.92
    assert share_of_close(nonsense) <= 0.2
    query = Query(ch.codes.pack(nonsense[:1] >= 0)[0], nonsense[0], "text")
    for cosine in (1.0, -1.0):
        assert Judge(store, query, "image").is_close([], [cosine] * NEAREST) is (cosine > 0)
    store.close()


FIT = [-13.3, 18.0, 2.0, -0.5]
CORRECTED_FIT = [-4.0, 9.0, 1.0, -0.5]
QUESTION = "two dogs on a beach"


@pytest.fixture
def judged(request, tmp_path, outputs, monkeypatch):
    """A store without captions whose model knows what fits, without a bank or with a given one."""
    bank = getattr(request, "param", None)
    known = {False: FIT, True: CORRECTED_FIT}
    monkeypatch.setattr(match, "read_fits", lambda corrected: {str(N_BITS): known[corrected]})
    strengths = np.sqrt((outputs[1][:50] ** 2).mean(axis=1))
    monkeypatch.setattr(match, "_CLEAR", {N_BITS: float(np.quantile(strengths, 0.1))})
    (tmp_path / "store" / "model").mkdir(parents=True)
    # A store of before has weights of its own, which nobody reads.
    architecture = {"encoder": "photo", "codes": "learned", "fit": [-9.0, 9.0, 9.0]}
    with ch.open_store(tmp_path / "store", n_bits=N_BITS, stage=Stage(N_BITS, bank=bank)) as store:
        write_model(
            tmp_path / "store" / "model",
            save,
            {},
            {"name": "fitted", "architecture": architecture},
        )
        texts = [{"text": f"thing {row}"} for row in range(N)]
        image = outputs[0]["image"]
        store.add(
            [f"{row:04}" for row in range(N)], ch.codes.pack(image >= 0), "image", texts, image
        )
        yield store


TEXTS = np.random.default_rng(3).normal(size=(40, N_BITS))
TEXTS /= np.linalg.norm(TEXTS, axis=1, keepdims=True)
BANK = Bank(TEXTS.astype(np.float16), temperature=0.1)


@pytest.mark.parametrize("judged", [BANK], indirect=True)
def test_what_fits_goes_by_similarities_that_are_corrected_for_hubs(judged, outputs):
    stored, held_out, _ = outputs
    units = stored["image"] / np.linalg.norm(stored["image"], axis=1, keepdims=True)
    row = held_out[0].astype(np.float32)
    query = Query(ch.codes.pack(row[None] >= 0)[0], row, "text", QUESTION)
    cosines = units @ row / np.linalg.norm(row)
    corrected = cosines - BANK.excesses(units)
    hits = search_hits(judged, query)
    assert int(hits[0].id) == corrected.argmax()
    for hit in hits:
        assert hit.similarity == pytest.approx(corrected[int(hit.id)], abs=0.01)
        inputs = [1, hit.similarity, hit.similarity**2, math.log2(5)]
        logit = sum(w * x for w, x in zip(CORRECTED_FIT, inputs, strict=True))
        assert hit.fit == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)
    seen = search_hits(judged, replace(query, modality="image", words=""))
    assert seen[0].similarity == pytest.approx(cosines.max(), abs=0.01)


def test_answers_that_fit_come_first_and_nonsense_has_none(judged, outputs):
    stored, held_out, nonsense = outputs
    units = stored["image"] / np.linalg.norm(stored["image"], axis=1, keepdims=True)
    found = []
    for row in held_out[:50]:
        cosines = units @ row / np.linalg.norm(row)
        code = ch.codes.pack(row[None] >= 0)[0]
        hits = search_hits(judged, Query(code, row.astype(np.float32), "text", QUESTION))
        for hit in hits:
            cosine = float(cosines[int(hit.id)])
            logit = FIT[0] + FIT[1] * cosine + FIT[2] * cosine**2 + FIT[3] * math.log2(5)
            share = 1 if math.sqrt((row**2).mean()) >= match._CLEAR[N_BITS] else 0.375
            assert hit.fit == pytest.approx(share / (1 + math.exp(-logit)), abs=0.05)  # of 8 bits
            assert hit.fits == (hit.fit >= FITS)
        assert hits.close == any(hit.fits for hit in hits)
        found.append(hits.close)
    assert np.mean(found) > 0.9
    rows = nonsense[:100].astype(np.float32)
    queries = [
        Query(code, row, "text", QUESTION)
        for code, row in zip(ch.codes.pack(rows >= 0), rows, strict=True)
    ]
    assert np.mean([search_hits(judged, query).close for query in queries]) < 0.2
    far = next(query for query in queries if not search_hits(judged, query).close)
    hits = answer(judged, replace(far, words="thing 17"), SearchOptions(k=20))
    # its own words answer
    assert [(hit.id, hit.fit, hit.fits) for hit in hits[:1]] == [("0017", 1.0, True)]
    assert hits.close
    assert not any(hit.fits for hit in hits[1:])
    for unknown in (replace(far, modality="image"), replace(far, words="")):
        assert [hit.fit for hit in search_hits(judged, unknown)] == [None] * 10
