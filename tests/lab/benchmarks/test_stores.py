import pytest

from channelhash.lab.benchmarks import stores


def test_the_folder_beside_no_server(monkeypatch):
    monkeypatch.setattr(stores, "SERVERS", {"nothing": ("no_such_library", None)})
    [row] = stores.benchmark_stores(2000)
    assert row["what"] == "folder"
    assert (row["right"], row["lost"]) == (1.0, 0)
    assert row["acknowledged"] >= 20
    assert 8 < row["bytes_an_item"] < 2000


@pytest.mark.slow
def test_a_killed_server_starts_again_with_all_that_it_acknowledged(monkeypatch):
    monkeypatch.setattr(stores, "SERVERS", {"PostgreSQL": stores.SERVERS["PostgreSQL"]})
    folder, server = stores.benchmark_stores(2000)
    assert (folder["what"], server["what"]) == ("folder", "PostgreSQL")
    assert (server["right"], server["lost"]) == (1.0, 0)
    assert server["acknowledged"] >= 20
