"""The figures of re-ranking: AP over every order of ties, and the experiment's table."""

import json
from itertools import pairwise, permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import channelhash as ch
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.studies.reranking import average_precisions
from channelhash.search.rerank import asymmetric_distances
from lab.experiments.made_grids import assert_made_again
from small_runs import feature_config, run_command, write_features


def mean_over_tie_orders(keys: list[tuple[float, ...]], relevant: list[bool]) -> float:
    """Mean AP of all orders of the items in which no item stands before one of a smaller key."""
    found = []
    for order in permutations(range(len(keys))):
        if all(keys[a] <= keys[b] for a, b in pairwise(order)):
            hits = np.cumsum([relevant[i] for i in order])
            at_hits = [hits[rank] / (rank + 1) for rank, i in enumerate(order) if relevant[i]]
            found.append(sum(at_hits) / len(at_hits))
    return float(np.mean(found))


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_ap_is_its_mean_over_every_order_of_ties(k, n, first, seed):
    random = np.random.default_rng(seed)
    outputs = random.normal(size=k).round(1)
    packed = ch.codes.pack((random.random((3, k)) < 0.5)[random.integers(0, 3, n)])
    query = ch.codes.pack(ch.codes.binarize(outputs[None]))
    relevant = random.random(n) < 0.5
    relevant[random.integers(n)] = True
    hamming = ch.codes.hamming_distances(query, packed)[0].tolist()
    asymmetric = asymmetric_distances(outputs, packed).tolist()
    by_hamming = sorted(range(n), key=lambda row: (hamming[row], row))

    def keys(depth: int) -> list[tuple[float, ...]]:
        head = set(by_hamming[:depth])
        return [(0, asymmetric[i], hamming[i]) if i in head else (1, hamming[i]) for i in range(n)]

    expected = [mean_over_tie_orders(keys(depth), relevant.tolist()) for depth in (0, first, n)]
    np.testing.assert_allclose(average_precisions(outputs, query, packed, relevant, (first, None)), expected, atol=1e-9)


def test_the_experiment_tabulates_what_re_ranking_adds(tmp_path):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), validate_every=0)
    command = ["experiment", "reranking", "--config", config, "--bits", "10", "--seeds", "2", "--out", tmp_path / "g"]
    assert run_command(*command, "--json") == 0
    _, results = read_grid(tmp_path / "g")
    assert [result.method for result in results] == ["SCH", "SCH", "DSCH", "DSCH"]
    for result in results:
        figures = json.loads((result.folder / "reranking.json").read_text())
        assert list(figures) == ["image->text", "text->image", "image->image", "text->text"]
        for task, (hamming, first_100, first_1000, every) in figures.items():
            np.testing.assert_allclose(hamming, result.score(task), atol=1e-12)
            assert first_1000 == every  # 200 items
            assert first_100 != every
    table = (tmp_path / "g" / "tables" / "reranking.md").read_text()
    assert "| SCH, k = 10 | image → text |" in table
    assert table.count("→") == 8
    assert "[" in table
    assert_made_again("reranking", tmp_path / "g")
