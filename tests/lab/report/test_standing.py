import numpy as np
import pytest

from channelhash.codes.code_set import CodeSet
from channelhash.lab.report.scores import Standing, stand_by_labels, stand_by_recall, verdict
from channelhash.metrics.report import evaluate
from channelhash.utils.seeds import generator


def code_sets(seed: int, told: bool) -> tuple[CodeSet, CodeSet]:
    """Queries and a database of random codes, or of codes that are their labels."""
    random = np.random.default_rng(seed)

    def codes(n: int) -> CodeSet:
        labels = random.random((n, 8)) < 0.2
        labels[np.arange(n), random.integers(0, 8, n)] = True
        bits = np.packbits(labels, axis=1) if told else random.integers(0, 256, (n, 1), dtype=np.uint8)
        return CodeSet([str(i) for i in range(n)], {"image": bits, "text": bits}, labels, n_bits=8)

    return codes(30), codes(60)


def test_chance_is_what_the_same_codes_get_with_shuffled_labels():
    query, database = code_sets(0, told=True)
    random = generator(0, "chance", "image->text")
    levels = []
    for _ in range(39):
        shuffled = CodeSet(database.ids, database.codes, random.permutation(database.labels), n_bits=8)
        levels.append(evaluate(query, shuffled)["image->text"]["map_tie_aware"])
    standing = stand_by_labels(query, database)[0]
    assert standing.chance == pytest.approx((min(levels), max(levels)))
    scores = evaluate(query, database)["image->text"]
    assert standing.score == pytest.approx(scores["map_tie_aware"])
    assert standing.interval == pytest.approx(tuple(scores["map_interval"].values()))


def test_random_codes_are_at_chance_and_codes_that_tell_labels_are_not():
    at_chance = [standing.at_chance for seed in range(20) for standing in stand_by_labels(*code_sets(seed, told=False))]
    assert np.mean(at_chance) >= 0.85  # 39 of 40 are expected
    for seed in range(5):
        assert not any(standing.at_chance for standing in stand_by_labels(*code_sets(seed, told=True)))


def test_without_labels_nothing_is_said_by_labels():
    query, database = code_sets(0, told=True)
    bare = CodeSet(database.ids, database.codes, None, n_bits=8)
    assert stand_by_labels(query, bare) == []
    assert verdict([]) == ""


@pytest.mark.parametrize(("recall", "at_chance"), [(0.05, True), (0.1, True), (0.4, False)])
def test_recall_stands_beside_the_binomial_interval_of_guessing(recall, at_chance):
    report = {"recall_at": {"10": recall}, "recall_items": 100, "queries": 100}
    (standing,) = stand_by_recall({"image->text": report, "text->text": {"map_tie_aware": 1.0}})
    assert standing.chance == pytest.approx((0.05, 0.16), abs=0.011)  # scipy.stats.binom(100, 0.1).interval(0.95)
    assert standing.at_chance is at_chance
    assert standing.measure == "Recall@10"


def test_the_verdict_names_the_directions_at_chance():
    good, bad = (Standing(task, score, (0, 1), (0.3, 0.4)) for task, score in (("a->b", 0.5), ("b->a", 0.4)))
    assert verdict([good, good]) == "This run is better than chance."
    assert verdict([good, bad]) == "This run is partly at chance: b → a gets 40.0 %, chance 30.0 to 40.0 %."
    assert verdict([bad, bad]).startswith("This run is at chance: b → a gets")
