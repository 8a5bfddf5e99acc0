"""Pictures that are copies of one photograph, and what stores make of them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, ImageEnhance

import channelhash as ch
from channelhash.search import alike as module
from channelhash.search.alike import alike, read_grey, read_greys, split_alike
from channelhash.search.duplicates import default_radius, find_duplicates
from channelhash.search.hits import Query, SearchOptions, search_hits
from channelhash.utils.seeds import generator


def photograph(number):
    """A picture with large shapes, as photographs have them: no two are alike."""
    pixels = generator(0, "alike", number).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((180, 150), Image.Resampling.BICUBIC)


def greys_of(draws, n):
    """Grey copies of few kinds: of what is drawn, noise added; and two that are not known."""
    kinds = generator(0, "greys", draws).integers(0, 256, (3, 256))
    noise = generator(1, "greys", draws).normal(0, 30, (n, 256))
    greys = [np.clip(kinds[i % 3] + noise[i], 0, 255).astype(np.uint8) for i in range(n)]
    return [*greys[:-2], *[None] * min(2, n)]


def literally_alike(a, b):
    if a is None or b is None:
        return a is b
    a, b = (without_means(grey) for grey in (a, b))
    covariance, variances = (a * b).mean(), [(side**2).mean() for side in (a, b)]
    return (covariance + 4) / np.sqrt((variances[0] + 4) * (variances[1] + 4)) >= 0.85


def without_means(grey):
    image = grey.reshape(16, 16).astype(float)
    image -= [[row.mean()] for row in image]
    return image - [column.mean() for column in image.T]


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 12))
def test_alike_is_the_correlation_that_it_says(draws, n):
    greys = greys_of(draws, n)
    assert alike(greys, greys[::-1]).tolist() == [[literally_alike(a, b) for b in greys[::-1]] for a in greys]


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(2, 30), st.integers(0, 3))
def test_groups_are_the_connected_components_of_all_pairs(draws, n, radius):
    greys, codes = greys_of(draws, n), generator(2, "greys", draws).integers(0, 8, (n, 1), dtype=np.uint8)
    sets = [{place} for place in range(n)]
    for a, b in combinations(range(n), 2):
        if int(codes[a, 0] ^ codes[b, 0]).bit_count() <= radius and literally_alike(greys[a], greys[b]):
            joined = next(one for one in sets if a in one) | next(one for one in sets if b in one)
            sets = [one for one in sets if not one & joined] + [joined]
    expected = sorted(sorted(one) for one in sets if len(one) > 1)
    for tile in (4, 1024):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_TILE", tile)
            assert sorted(group.tolist() for group in split_alike(codes, greys, radius)) == expected


def test_copies_are_alike_and_other_photographs_are_not(tmp_path):
    image = photograph(0)
    copies = {
        "small.png": image.resize((60, 50)),
        "q50.jpg": image,
        "bright.png": ImageEnhance.Brightness(image).enhance(0.85),
        "cut.png": image.crop((4, 3, 176, 147)),
        "grey.png": image.convert("L"),
        "colours.gif": image,
    }
    image.save(tmp_path / "itself.png")
    for name, copy in copies.items():
        copy.save(tmp_path / name, **({"quality": 50} if name.endswith(".jpg") else {}))
    turned, exif = image.transpose(Image.Transpose.ROTATE_90), Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    turned.save(tmp_path / "telephone.jpg", exif=exif)
    turned.save(tmp_path / "lying.png")
    itself = [read_grey(str(tmp_path / "itself.png"))]
    paths = [str(tmp_path / name) for name in (*copies, "telephone.jpg")]
    assert alike(itself, read_greys(paths)).all()
    for number in range(1, 9):
        photograph(number).save(tmp_path / f"{number}.png")
    others = read_greys([str(tmp_path / f"{number}.png") for number in range(1, 9)])
    assert not alike([*itself, read_grey(str(tmp_path / "lying.png"))], others).any()


@pytest.mark.parametrize("size", [(1024, 32), (32, 1024)])
def test_a_panorama_is_alike_to_its_jpeg(tmp_path, size):
    for name in ("a.png", "a.jpg"):
        photograph(3).resize(size).save(tmp_path / name)
    assert alike([read_grey(str(tmp_path / "a.png"))], [read_grey(str(tmp_path / "a.jpg"))]).all()


def test_pictures_without_contrast_are_alike_and_like_no_others():
    flat = [np.full(256, value, np.uint8) for value in (0, 90, 255)]
    pale = flat[1] + generator(0, "pale").integers(0, 2, 256, dtype=np.uint8)
    assert alike([*flat, pale], flat).all()
    assert not alike([greys_of(0, 9)[0]], [*flat, pale]).any()
    assert not alike([*flat, pale], [None]).any(), "nor like one that is not known"


def test_what_cannot_be_read_is_not_known_and_what_changes_is_read_again(tmp_path):
    file = tmp_path / "a.png"
    photograph(0).save(file)
    first = read_grey(str(file))
    photograph(1).save(file)
    assert not alike([first], [read_grey(str(file))]).any()
    file.write_bytes(file.read_bytes()[:200])
    (tmp_path / "a.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    assert read_greys([str(file), str(tmp_path / "gone.png"), str(tmp_path / "a.eps"), ""]) == [None] * 4


@pytest.fixture
def store(tmp_path):
    """A scene of three photographs at 0 bits, one of them with two copies; and an item 5 bits off without a picture."""
    for name, number in {"a": 0, "b": 1, "c": 2, "b2": 1, "b3": 1}.items():
        photograph(number).save(tmp_path / f"{name}.png")
    opened = ch.open_store(tmp_path / "store", n_bits=64)
    names, codes = ["a", "b", "c", "b2", "b3"], np.zeros((6, 8), np.uint8)
    codes[3:5, 0] = 0b11, 0b111
    codes[5, 7] = 0b11111
    metadata = [{"image": str(tmp_path / f"{name}.png")} for name in names] + [{}]
    opened.add([*names, "z"], {"image": codes, "text": codes}, metadata=metadata)
    return opened


def ids(groups):
    return [group.ids for group in groups]


def test_near_codes_of_different_photographs_are_no_duplicates(store, tmp_path):
    assert ids(find_duplicates(store)) == [["b", "b2", "b3"]]
    assert [group.distances for group in find_duplicates(store)] == [[0, 2, 3]]
    assert ids(find_duplicates(store, radius=1)) == [["b2", "b3"]]
    assert ids(find_duplicates(store, pictures=False)) == [["a", "b", "b2", "b3", "c"]]
    assert ids(find_duplicates(store, modality="text")) == [["a", "b", "b2", "b3", "c"]], "pictures are not what counts"
    assert ids(find_duplicates(store, radius=5)) == [["b", "b2", "b3"]]
    (tmp_path / "c.png").unlink()
    assert ids(find_duplicates(store, radius=5)) == [["b", "b2", "b3"], ["c", "z"]], (
        "codes are all that is left of both"
    )


def test_collapse_agrees(store):
    def folded(**options):
        hits = search_hits(store, Query(np.zeros(8, np.uint8)), SearchOptions(**options))
        return {hit.id: hit.duplicates for hit in hits}

    assert folded(collapse=default_radius(64)) == {"a": [], "b": ["b2", "b3"], "c": [], "z": []}
    assert folded(collapse=4, k=2) == {"a": [], "b": ["b2", "b3"]}
    assert folded(collapse=4, modality="text") == {"a": ["b", "c", "b2", "b3"], "z": []}
