"""This version behaves as the recorded one: `behaviour` says what is recorded and how to record it
anew.
"""

import json
from typing import Any

import pytest

from acceptance import behaviour
from search.servers import milvus_address, postgres_address, stop_server

# Encoders run on other kernels on other processors: a bit next to zero may fall on either side.
_BITS = 3


def recorded(name: str) -> Any:
    return json.loads((behaviour.RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def differences(now: Any, before: Any, tolerance: float, place: str = "") -> list[str]:
    """Name each place where two values differ; numbers may by ``tolerance``, relative to the larger
    one.
    """
    if isinstance(now, dict) and isinstance(before, dict):
        keys = [f"{place}/{key}: only in one" for key in now.keys() ^ before.keys()]
        both = now.keys() & before.keys()
        return keys + [
            line
            for key in both
            for line in differences(now[key], before[key], tolerance, f"{place}/{key}")
        ]
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        pairs = enumerate(zip(now, before, strict=True))
        return [
            line for row, pair in pairs for line in differences(*pair, tolerance, f"{place}/{row}")
        ]
    numbers = [
        isinstance(value, float | int) and not isinstance(value, bool) for value in (now, before)
    ]
    same = (
        now == pytest.approx(before, rel=tolerance, abs=tolerance)
        if all(numbers)
        else now == before
    )
    return [] if same else [f"{place}: {now!r}, recorded {before!r}"]


@pytest.mark.parametrize("name", behaviour.QUICK)
def test_what_takes_seconds_is_as_recorded(name, tmp_path):
    now = behaviour.QUICK[name](tmp_path)
    assert differences(json.loads(json.dumps(now)), recorded(name), 1e-6) == []


@pytest.mark.parametrize("kind", ["folder", "postgres"])
def test_every_store_answers_as_recorded(kind, tmp_path):
    answers = behaviour.store_answers(
        tmp_path / "store" if kind == "folder" else postgres_address(tmp_path)
    )
    assert differences(answers, recorded("stores"), 0) == []


@pytest.mark.slow  # starts a server
def test_milvus_answers_as_recorded_but_for_ties_at_the_last_distance(tmp_path):
    try:
        now = behaviour.store_answers(milvus_address(tmp_path))
    finally:
        stop_server()
    before = recorded("stores")
    for question, answer in before.items():
        if question.startswith("nearest") or question == "after changes":
            for answers in (answer, now[question]):
                [ids], [distances] = answers[:2]
                answers[0] = [
                    name
                    for name, distance in zip(ids, distances, strict=True)
                    if distance < distances[-1]
                ]
    assert differences(now, before, 0) == []


@pytest.mark.slow
def test_trainings_end_with_the_same_weights(tmp_path):
    now, before = behaviour.trainings(tmp_path), recorded("trainings")
    if {run["machine"] for run in (*now.values(), *before.values())} == {behaviour.machine()}:
        assert [run["sha256"] for run in now.values()] == [before[name]["sha256"] for name in now]
    for run in (*now.values(), *before.values()):
        del run["machine"], run["sha256"]
    assert differences(now, before, 1e-3) == []


@pytest.mark.slow
def test_the_papers_grid_has_the_same_scores(tmp_path):
    assert differences(behaviour.grid(tmp_path), recorded("grid"), 1e-3) == []


@pytest.mark.slow
def test_photographs_are_found_as_recorded(tmp_path):
    now, before = behaviour.photographs(tmp_path), recorded("photographs")
    assert now.keys() == before.keys()
    assert now.pop("duplicates") == before.pop("duplicates")
    for question, answer in now.items():
        old = before[question]
        assert answer.get("close") == old.get("close"), question
        assert answer.get("line") == old.get("line"), question
        hits = answer.get("results", [])
        distances = {hit["id"]: hit["distance"] for hit in hits if hit["distance"] is not None}
        for hit in old.get("results", []):
            # the last answers may change places with the next
            last = max(distances.values(), default=0) - _BITS
            if hit["distance"] is not None and hit["distance"] < last:
                assert distances.get(hit["id"]) == pytest.approx(hit["distance"], abs=_BITS), (
                    question,
                    hit,
                )
