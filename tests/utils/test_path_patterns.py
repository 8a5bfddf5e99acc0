"""Patterns of paths against a literal matcher."""

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from channelhash.utils.addresses import match_any


def literally(pattern: str, path: str, is_folder: bool) -> bool:
    """Part by part, as the docstring says."""
    if pattern.endswith("/") and not is_folder:
        return False
    body = pattern.rstrip("/")
    wanted = body.removeprefix("/").split("/") if "/" in body else ["**", body]

    def fits(parts, names):
        if not parts:
            return not names
        if parts[0] == "**":
            if len(parts) == 1:
                return bool(names)
            return any(fits(parts[1:], names[start:]) for start in range(len(names) + 1))
        return bool(names) and fnmatchcase(names[0], parts[0]) and fits(parts[1:], names[1:])

    return fits(wanted, path.split("/"))


PARTS = st.sampled_from(["a", "b", "*", "?", "a*", "*b", "[ab]", "[!a]", "a.b", "**"])
PATTERNS = st.tuples(st.sampled_from(["", "/"]), st.lists(PARTS, min_size=1, max_size=3), st.sampled_from(["", "/"]))
PATHS = st.lists(st.sampled_from(["a", "b", "ab", "a.b", "axb"]), min_size=1, max_size=4)


@given(PATTERNS, PATHS, st.booleans())
def test_a_pattern_matches_what_its_parts_match(pattern, path, is_folder):
    text, name = pattern[0] + "/".join(pattern[1]) + pattern[2], "/".join(path)
    assert match_any([text])(name, is_folder) == literally(text, name, is_folder)
