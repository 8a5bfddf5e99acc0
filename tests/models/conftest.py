import pytest

from channelhash.data.records import Records
from picture_runs import picture_records


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Records:
    """12 pictures with captions; files with other records have a fixture of their own."""
    return picture_records(tmp_path_factory.mktemp("pictures"), 12)
