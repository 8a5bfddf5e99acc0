"""``GET /duplicates``."""

import shutil

import pytest

from channelhash.search.duplicates import find_duplicates
from serve.served import N_BITS


def test_groups_are_those_of_the_store(client):
    groups = find_duplicates(client.app_store, 2, pictures=False)
    assert groups
    answer = client.get("/duplicates", params={"radius": 2, "k": 1, "pictures": False}).json()
    assert (answer["found"], answer["sizes"]) == (len(groups), [len(groups[0].ids)])
    assert (answer["groups"], answer["distances"]) == ([groups[0].ids], [groups[0].distances])
    everything = client.get("/duplicates", params={"where": "year < 2010", "modality": "text"}).json()
    expected = find_duplicates(client.app_store, modality="text", where="year < 2010")
    assert everything["groups"] == [group.ids for group in expected]
    assert everything["radius"] is None
    wide = client.get("/duplicates", params={"radius": N_BITS, "pictures": False}).json()
    assert (wide["radius"], wide["sizes"]) == (N_BITS, [len(client.app_store.codes("image")[0])])


def test_items_whose_pictures_differ_are_none(client):
    """The pictures are noise of a few colours; two of them become one."""
    assert client.get("/duplicates").json()["groups"] == []
    names = find_duplicates(client.app_store, 2, pictures=False)[0].ids[:2]
    first, second = (item.metadata["image"] for item in client.app_store.get(names))
    shutil.copyfile(first, second)
    assert client.get("/duplicates").json()["groups"] == [names]


@pytest.mark.parametrize(("params", "problem"), [({"k": 100_000}, "k"), ({"where": "colour = 1"}, "colour")])
def test_what_is_beyond_the_limits_is_refused(client, params, problem):
    answer = client.get("/duplicates", params=params)
    assert answer.status_code == 422
    assert problem in answer.json()["error"]
