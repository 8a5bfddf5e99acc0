"""Patterns of paths beside those of the docstring."""

import pytest

from channelhash.data.folder import _match_any


@pytest.mark.parametrize(("pattern", "paths", "others"), [
    ("/a", ["a"], ["b/a", "a/b"]),
    ("[ab].gif", ["a.gif", "x/b.gif"], ["ab.gif", "c.gif"]),
    ("[!a].gif", ["b.gif"], ["a.gif"]),
    ("raw/*", ["raw/a"], ["raw/a/b", "x/raw/a"]),
    ("raw/**", ["raw/a", "raw/a/b"], ["raw", "x/raw/a"]),
    ("**/a", ["a", "b/a", "b/c/a"], ["b/aa"]),
    ("a+(b)", ["a+(b)"], ["aab"]),
])  # fmt: skip
def test_a_pattern_matches_names_at_any_depth_or_paths_from_the_top(pattern, paths, others):
    matches = _match_any([pattern])
    assert [path for path in (*paths, *others) if matches(path, False)] == paths
