"""Text of any script is drawn in the fonts at hand, within its column, and never fails."""

from importlib.util import find_spec
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image, ImageDraw

from channelhash.utils import fonts
from channelhash.utils.fonts import draw_line, wrap_text

#: Two letters or words of scripts in which people name photographs.
SCRIPTS = {
    "Latin": ("Zürich", "Łódź"),
    "Vietnamese": ("Huế", "Hội"),
    "Greek": ("Ωμέγα", "Άλφα"),
    "Cyrillic": ("Ялта", "Ёжик"),
    "Armenian": ("Երևան", "Գյումրի"),
    "Georgian": ("თბილისი", "ბათუმი"),
    "Hebrew": ("חיפה", "שלום"),
    "Arabic": ("عربي", "صورة"),
    "Devanagari": ("दिल्ली", "नमस्ते"),
    "Bengali": ("ঢাকা", "ছবি"),
    "Tamil": ("சென்னை", "படம்"),
    "Thai": ("ไทย", "สวัสดี"),
    "Ethiopic": ("አማርኛ", "ፎቶ"),
    "Chinese": ("北京", "夜"),
    "Japanese": ("浜辺の犬", "カメラ"),
    "Korean": ("서울", "사진"),
    "emoji": ("😀", "🐕"),
    "joined emoji": ("👨‍👩‍👧", "👍🏽"),
    "flags": ("🇵🇹", "🇨🇭"),
}
#: Names as people, cameras and other systems give them.
NAMES = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from([word for words in SCRIPTS.values() for word in words])).map(" ".join),
    st.text(st.characters(categories=["Mn", "Cf", "Cc", "Cs", "Co", "Zl", "Zp"]), max_size=12),
)
needs_fonts = pytest.mark.skipif(
    find_spec("manimgx_fonts") is None, reason="needs the extra photos"
)


def drawn(text: str, size: int = 11) -> np.ndarray:
    image = Image.new("L", (160, 40), "white")
    draw_line(ImageDraw.Draw(image), (4, 24), text, size)
    return np.asarray(image)


@pytest.fixture
def no_system_fonts(monkeypatch):
    """A system without fonts, as a server is."""
    monkeypatch.setattr(fonts, "_system_fonts", list)
    fonts._find_font.cache_clear()
    yield
    fonts._find_font.cache_clear()


@needs_fonts
@pytest.mark.parametrize("script", SCRIPTS)
def test_what_the_extra_brings_has_every_script(script, no_system_fonts):
    one, other = SCRIPTS[script]
    assert all("\ufffd" not in run for word in (one, other) for _, run in fonts._runs(word))
    assert (drawn(one) != drawn(other)).any()
    assert (drawn(one) != drawn("\ufffd" * len(one))).any()
    assert (drawn(f"1. {one}.jpg") < 255).sum() > (drawn(one) < 255).sum()


@pytest.mark.parametrize(
    "missing", ["\U000f0000", "a\x00b", "\x1b[31m", "\udcff.jpg", "\U00016a40"]
)
def test_what_no_font_has_is_a_visible_replacement(missing, no_system_fonts, monkeypatch):
    for packages in (fonts._package_fonts(), []):
        monkeypatch.setattr(fonts, "_package_fonts", lambda packages=packages: packages)
        fonts._find_font.cache_clear()
        assert any("\ufffd" in run for _, run in fonts._runs(missing))
        assert (drawn(missing) < 255).any()
        assert (drawn("a") < 255).any()


def test_fonts_of_the_system_come_after_those_that_are_brought(tmp_path, monkeypatch):
    """A damaged font of the system's is passed over."""
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(b"\x00\x01\x00\x00damaged")
    monkeypatch.setattr(fonts, "_package_fonts", list)
    monkeypatch.setattr(fonts, "_system_fonts", lambda: [str(damaged), "brought"])
    has = fonts._has.__wrapped__
    monkeypatch.setattr(
        fonts,
        "_has",
        lambda font, letter: letter == "犬" if font == "brought" else has(font, letter),
    )
    fonts._find_font.cache_clear()
    found = [fonts._find_font(letter) for letter in "a犬\U000f0000"]
    fonts._find_font.cache_clear()
    assert found == ["", "brought", None]


@pytest.mark.parametrize(
    ("platform", "folder"),
    [("linux", "fonts"), ("darwin", "Library/Fonts"), ("win32", "Microsoft/Windows/Fonts")],
)
def test_fonts_of_a_person_are_found_on_every_system(platform, folder, tmp_path, monkeypatch):
    for name in ("a.TTF", "deep/b.ttc", "LastResort.otf", "c.txt"):
        (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).touch()
    monkeypatch.setattr("sys.platform", platform)
    for variable in ("HOME", "USERPROFILE", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    found = fonts._system_fonts.__wrapped__()
    own = [path for path in found if str(tmp_path) in path]
    assert own == [str(tmp_path / folder / name) for name in ("a.TTF", "deep/b.ttc")]


def test_arabic_with_digits_between_is_one_run_and_latin_beside_it_another():
    runs = [run for _, run in fonts._runs("1. صورة 2020 عربي.jpg")]
    assert "صورة 2020 عربي" in "".join(runs)
    assert len(runs) in (1, 3)


@settings(max_examples=60)
@given(NAMES)
def test_any_text_is_wrapped_into_its_column_and_drawn(text):
    lines = list(islice(wrap_text(text, 124, 11), 9))
    for line in lines:
        assert fonts._length(line, 11) <= 124 or len(fonts._letters(line)) == 1
        drawn(line)
    written = [letter for word in text.split() for letter in fonts._letters(word)]
    kept = [letter for line in lines for word in line.split() for letter in fonts._letters(word)]
    assert kept == (written if len(lines) < 9 else written[: len(kept)])


def test_a_name_of_any_length_keeps_to_its_column():
    lines = list(islice(wrap_text("1. " + "Wü" * 1_000_000, 124, 11), 3))
    assert len(lines) == 3
    assert lines[0].startswith("1. W")
    assert next(wrap_text("浜辺の犬" * 6, 124, 11)).startswith("浜辺の犬浜辺の犬")
    assert list(wrap_text("a\nb\u2028c", 124, 11)) == ["a", "b", "c"]
