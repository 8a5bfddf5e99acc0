import pytest

from channelhash.search import index as code_index


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Search with the compiled loops from the first code on; a test that means NumPy's scan says so."""
    monkeypatch.setattr(code_index, "_left_to_numpy", 0)
