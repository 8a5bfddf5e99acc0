"""Images that are copies of one photograph, and groups of them. Last, the table of the page on
search.

``PHOTOS=folder pytest -m slow -s tests/copies/test_small_copies.py`` measures that of the first 250
JPEG files of a folder.
"""

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import ExifTags, Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps

from channelhash.copies import detail, grouping, moved
from channelhash.copies.grouping import group_copies
from channelhash.copies.moved import alike
from channelhash.copies.small_copies import SmallCopy, read_copies
from channelhash.utils.seeds import generator
from picture_runs import photograph


def copies_of(draws, n):
    """Copies of few kinds: noise is added to what is drawn, to shapes more than to colours."""
    kinds = generator(0, "greys", draws).integers(0, 256, (3, 16, 16))
    noise = generator(1, "greys", draws).normal(0, 30, (n, 16, 16))
    colours = generator(2, "greys", draws).integers(0, 200, (2, 16, 16, 3))
    tints = generator(3, "greys", draws).normal(0, 12, (n, 16, 16, 3))
    kinds = np.concatenate([kinds, kinds.swapaxes(1, 2)[:, ::-1]])
    greys = [np.clip(kinds[i % 6] + noise[i], 0, 255).astype(np.uint8) for i in range(n)]
    return [
        SmallCopy("", grey, (colours[i % 4 // 2] + tints[i]).clip(0, 255).astype(np.uint8), False)
        for i, grey in enumerate(greys)
    ]


def literally_alike(one, other, least=0.85, colours=15):
    turns = [(np.rot90(other.grey, n), np.rot90(other.colour, n)) for n in range(4)]
    turns += [(grey[::-1], colour[::-1]) for grey, colour in turns]
    others = [SmallCopy("", grey, colour, False) for grey, colour in turns]
    return any(
        literally_upright(one, turned, least + (0.08 if n else 0), colours)
        for n, turned in enumerate(others)
    )


def literally_upright(one, other, least, colours):
    a, b = (without_means(copy.grey) for copy in (one, other))
    covariance, variances = (a * b).mean(), [(side**2).mean() for side in (a, b)]
    patches = [copy.colour.reshape(4, 4, 4, 4, 3).mean(axis=(1, 3)) for copy in (one, other)]
    levels = np.sqrt(((patches[0] - patches[1]) ** 2).mean())
    shape = (covariance + 4) / np.sqrt((variances[0] + 4) * (variances[1] + 4))
    contrast = np.sqrt(min(variances))
    is_alike = shape >= least and levels <= min(32, 8 + 8 * contrast) + 2 * contrast
    return is_alike and literally_one_colour(one, other, colours)


def literally_one_colour(one, other, most):
    a, b = (
        np.array([[cb_and_cr(*cell) for cell in row] for row in copy.colour.tolist()])
        for copy in (one, other)
    )
    if ((a - a.mean(axis=(0, 1))) ** 2).sum() > ((b - b.mean(axis=(0, 1))) ** 2).sum():
        a, b = b, a
    spreads = [((side - side.mean(axis=(0, 1))) ** 2).sum(axis=2).mean() ** 0.5 for side in (a, b)]
    b = (spreads[0] + 1) / (spreads[1] + 1) * b
    b = b + np.median(a - b, axis=(0, 1)).clip(-12, 12)
    for row in range(16):
        for column in range(16):
            strength = max(np.hypot(*a[row, column]), np.hypot(*b[row, column]))
            for cell, other in ((a[row, column], b), (b[row, column], a)):
                near = other[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
                beyond = max((near.min((0, 1)) - cell).max(), (cell - near.max((0, 1))).max())
                if beyond > most + 0.3 * strength:
                    return False
    return True


def cb_and_cr(red, green, blue):
    return (
        -0.169 * red - 0.331 * green + 0.5 * blue,
        0.5 * red - 0.419 * green - 0.081 * blue,
    )


def without_means(grey):
    image = grey.astype(float)
    image -= image.mean(axis=1, keepdims=True)
    return image - image.mean(axis=0, keepdims=True)


@settings(max_examples=15)
@given(st.integers(0, 1000), st.integers(1, 12))
def test_alike_is_the_correlation_and_the_colours_that_it_says(draws, n):
    copies = copies_of(draws, n)
    assert alike(copies, copies[::-1]).tolist() == [
        [literally_alike(a, b) for b in copies[::-1]] for a in copies
    ]


@settings(max_examples=15)
@given(st.integers(0, 1000), st.integers(2, 30), st.integers(0, 3))
def test_groups_are_those_of_all_pairs_whose_pictures_are_all_alike(draws, n, radius):
    copies, codes = (
        copies_of(draws, n),
        generator(2, "greys", draws).integers(0, 8, (n, 1), dtype=np.uint8),
    )
    sets = [{place} for place in range(n)]
    for a, b in combinations(range(n), 2):
        if int(codes[a, 0] ^ codes[b, 0]).bit_count() <= radius and literally_alike(
            copies[a], copies[b]
        ):
            joined = next(one for one in sets if a in one) | next(one for one in sets if b in one)
            sets = [one for one in sets if not one & joined] + [joined]
    expected = []
    for connected in sets:
        groups: list[list[int]] = []
        for place in sorted(connected):
            fitting = [
                group
                for group in groups
                if all(literally_alike(copies[place], copies[x], 0.75, 22) for x in group)
            ]
            if fitting:
                fitting[0].append(place)
            else:
                groups.append([place])
        expected += [group for group in groups if len(group) > 1]
    for tile in (4, 1024):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grouping, "_TILE", tile)
            assert sorted(
                group.tolist() for group in group_copies(codes, copies, radius)
            ) == sorted(expected)


def test_a_chain_joins_no_two_different_pictures():
    """A picture between two others, alike to both."""
    draw = generator(0, "chain")
    one, other = (draw.normal(0, 40, (16, 16)) for _ in range(2))
    greys = [
        (128 + one * np.cos(turn) + other * np.sin(turn)).clip(0, 255).astype(np.uint8)
        for turn in (0, 0.5, 1)
    ]
    copies = [SmallCopy("", grey, np.zeros((16, 16, 3), np.uint8), False) for grey in greys]
    near = alike(copies, copies)
    assert near[0, 1]
    assert near[1, 2]
    assert not near[0, 2]
    assert [group.tolist() for group in group_copies(np.zeros((3, 1), np.uint8), copies, None)] == [
        [0, 1]
    ]


def read(path):
    [copy] = read_copies([str(path)])
    assert copy is not None
    return copy


def lines(number, width=500, height=800):
    """A page of one layout: words of equal length at the same places, with other letters."""
    page = Image.new("RGB", (width, height), (246, 246, 244))
    draw, letters = ImageDraw.Draw(page), generator(0, "lines", number)
    for y in range(60, height - 60, 36):
        for x, length in ((30, 8), (380, 5)):
            word = "".join(
                chr(ord("A") + letter) for letter in letters.integers(0, 26, length).tolist()
            )
            draw.text((x, y), word, font=ImageFont.load_default(22), fill="black")
    return page


def test_pages_of_one_layout_are_alike_only_to_their_copies(tmp_path):
    pages = [lines(number) for number in range(2)]
    for number, page in enumerate(pages):
        page.save(tmp_path / f"{number}.png")
        page.save(tmp_path / f"{number}-q30.jpg", quality=30)
        page.resize((250, 400), Image.Resampling.LANCZOS).save(tmp_path / f"{number}-half.png")
        ImageEnhance.Brightness(page).enhance(0.9).save(tmp_path / f"{number}-dark.webp")
    files = sorted(tmp_path.iterdir())
    copies = [read(file) for file in files]
    groups = group_copies(np.zeros((len(files), 1), np.uint8), copies, None)
    assert [[files[place].name[0] for place in group] for group in groups] == [
        [number] * 4 for number in "01"
    ]
    shapes = [copy._replace(is_page=False) for copy in copies]
    assert alike(shapes, shapes).all(), "small copies alone do not tell them apart"


def test_one_changed_line_makes_another_page(tmp_path):
    page = lines(0)
    page.save(tmp_path / "a.png")
    page.paste(lines(1).crop((370, 380, 490, 410)), (370, 380))
    page.save(tmp_path / "b.png")
    one, other = read(tmp_path / "a.png"), read(tmp_path / "b.png")
    assert not alike([one], [other]).any()
    (tmp_path / "b.png").unlink()
    detail._read_lines.cache_clear()
    assert not alike([one], [other]).any(), "it has gone since its small copy was read"


def test_pictures_without_shape_are_compared_by_colour(tmp_path):
    """One colour each, a gradient turned, and copies: removing means of rows and columns leaves
    nothing of them.
    """
    ramp = np.linspace(0, 255, 120)
    images = {
        "white": np.full((120, 120, 3), 255.0),
        "black": np.zeros((120, 120, 3)),
        "red": np.full((120, 120, 3), (200, 0, 0)),
        "green": np.full((120, 120, 3), (0, 102, 0)),
        "across": np.zeros((120, 120, 3)) + ramp[None, :, None],
        "back": np.zeros((120, 120, 3)) + ramp[None, ::-1, None],
        "down": np.zeros((120, 120, 3)) + ramp[:, None, None],
    }
    for name, pixels in images.items():
        image = Image.fromarray(pixels.astype(np.uint8))
        image.save(tmp_path / f"{name}.png")
        image.resize((60, 60)).save(tmp_path / f"{name}-half.jpg", quality=50)
    files = sorted(tmp_path.iterdir())
    groups = group_copies(np.zeros((len(files), 1), np.uint8), [read(file) for file in files], None)
    names = [[name] for name in ("white", "black", "red", "green")] + [["across", "back", "down"]]
    expected = [
        [f"{name}{end}" for name in same for end in ("-half.jpg", ".png")] for same in names
    ]
    assert sorted([files[place].name for place in group] for group in groups) == sorted(expected)


KINDS = {
    f"turned {turn.name}": lambda image, turn=turn: image.transpose(turn)
    for turn in Image.Transpose
} | {
    "half": lambda image: image.resize((90, 75)),
    "small": lambda image: image.resize((60, 50)),
    "mirrored half": lambda image: ImageOps.mirror(image).resize((90, 75)),
    "dark": lambda image: ImageEnhance.Brightness(image).enhance(0.85),
    "grey": lambda image: image.convert("L"),
    "cut": lambda image: image.crop((4, 3, 176, 147)),
    "border": lambda image: ImageOps.expand(image, 3, "white"),
}


def test_each_kind_of_copy_is_alike_to_its_original_and_joins_no_other(tmp_path):
    n, exif = 5, Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for number in range(n):
        image = photograph(number)
        for kind, change in KINDS.items():
            change(image).save(tmp_path / f"{number} {kind}.png")
        for name, options in {
            "itself.png": {},
            "q50.jpg": {"quality": 50},
            "colours.gif": {},
        }.items():
            image.save(tmp_path / f"{number} {name}", **options)
        image.transpose(Image.Transpose.ROTATE_90).save(
            tmp_path / f"{number} telephone.jpg", exif=exif
        )
    files = sorted(tmp_path.iterdir())
    copies = [read(file) for file in files]
    are_alike = alike([read(tmp_path / f"{number} itself.png") for number in range(n)], copies)
    assert are_alike.tolist() == [
        [file.name[0] == str(number) for file in files] for number in range(n)
    ]
    found = group_copies(np.zeros((len(files), 1), np.uint8), copies)
    assert [group.tolist() for group in found] == [
        np.flatnonzero(row).tolist() for row in are_alike
    ]
    for size in ((1024, 32), (32, 1024)):
        panoramas = [tmp_path / f"{size}.{ending}" for ending in ("png", "jpg")]
        for path in panoramas:
            photograph(3).resize(size).save(path)
        assert alike(*([read(path)] for path in panoramas)).all()


def test_what_cannot_be_read_is_not_known_and_what_changes_is_read_again(tmp_path):
    file = tmp_path / "a.png"
    photograph(0).save(file)
    first = read(file)
    photograph(1).save(file)
    assert not alike([first], [read(file)]).any()
    file.write_bytes(file.read_bytes()[:200])
    (tmp_path / "a.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    paths = [str(file), str(tmp_path / "gone.png"), str(tmp_path / "a.eps"), ""]
    assert read_copies(paths) == [None] * 4


def scenery(number):
    """Draw shapes of many sizes, as photographs have them, on a shaded ground."""
    draw = generator(0, "scenery", number)
    image = photograph(number).resize((360, 270))
    drawn = ImageDraw.Draw(image)
    for _ in range(60):
        x, y, side = (int(part) for part in draw.uniform((0, 0, 8), (340, 250, 60)))
        colour = tuple(draw.integers(0, 256, 3).tolist())
        drawn.ellipse([x, y, x + side, y + side * 2 // 3], fill=colour)
    return image


def cut(image, draw, share):
    """Cut a share off each side on average, not the same on each."""
    left, top = draw.uniform(0.3, 0.7, 2) * 2 * share
    width, height = image.size
    right, bottom = left + 1 - 2 * share, top + 1 - 2 * share
    box = [left * width, top * height, right * width, bottom * height]
    return image.crop([round(side) for side in box])


def turned_a_little(image, draw):
    angle = draw.uniform(1, 3) * draw.choice([-1, 1])
    return image.rotate(
        angle, Image.Resampling.BICUBIC, fillcolor=str(draw.choice(["black", "white"]))
    )


def on_a_telephone(image, draw):
    page, ink = ("black", "white") if draw.integers(0, 2) else ("white", "black")
    screen = Image.new("RGB", (image.width, 2 * image.width), page)
    drawn = ImageDraw.Draw(screen)
    drawn.text((12, 8), f"{draw.integers(10, 24)}:41", font=ImageFont.load_default(16), fill=ink)
    screen.paste(image, (0, int(draw.integers(60, 300))))
    drawn.text((20, 640), "what a day", font=ImageFont.load_default(16), fill=ink)
    return screen


MOVED = {
    "4 % cut off": lambda image, draw: cut(image, draw, 0.04),
    "10 % cut off": lambda image, draw: cut(image, draw, 0.1),
    "border": lambda image, draw: ImageOps.expand(
        image, int(draw.integers(8, 30)), str(draw.choice(["white", "black", "#b03030"]))
    ),
    "rotated": turned_a_little,
    "rotated and cut": lambda image, draw: cut(turned_a_little(image, draw), draw, 0.06),
    "screenshot": on_a_telephone,
}


def at_another_time(image, draw):
    """A photograph of the same series: in a square of an eighth of its width all is different."""
    x, y = (int(part) for part in draw.uniform((60, 60), (200, 150)))
    other = image.copy()
    other.paste(ImageOps.invert(image.crop((x, y, x + 45, y + 45))), (x, y))
    return other


@pytest.mark.parametrize("kind", MOVED)
def test_moved_copies_of_each_kind_are_found_and_those_of_a_series_are_none(kind, tmp_path):
    n = 5
    originals, copies, later = [], [], []
    for number in range(n):
        draw = generator(0, kind, number)
        image = scenery(number)
        for name, copy, shown in (
            ("original", originals, image),
            ("copy", copies, MOVED[kind](image, draw)),
            ("later", later, MOVED[kind](at_another_time(image, draw), draw)),
        ):
            shown.save(tmp_path / f"{number} {name}.jpg", quality=85)
            copy.append(read(tmp_path / f"{number} {name}.jpg"))
    found = alike(originals, copies)
    assert not found[~np.eye(n, dtype=bool)].any()
    assert found.sum() >= n - 1
    every = np.ones((n, n), dtype=bool)
    assert not moved.confirm_moved(originals, later, every).any()
    mirrored = [copy.turned(1)._replace(fine=copy.fine[::-1], turn=0) for copy in originals]
    groups = group_copies(np.zeros((3 * n, 1), np.uint8), [*originals, *mirrored, *copies])
    assert [group.tolist() for group in groups] == [
        [place, place + n] + [place + 2 * n] * bool(found[place, place]) for place in range(n)
    ]


@settings(max_examples=15)
@given(st.integers(0, 1000))
def test_a_copy_is_what_was_packed(seed):
    draw = generator(0, "packed", seed)

    def cells(*shape):
        return draw.integers(0, 256, shape, dtype=np.uint8)

    framed = SmallCopy(
        "a", cells(16, 16), cells(16, 16, 3), False, 2.5, fine=cells(32, 32), box=(2, 4, 250, 256)
    )
    copy = SmallCopy(
        "a", cells(16, 16), cells(16, 16, 3), True, 0.5, fine=cells(32, 32), framed=framed
    )
    for one in (copy, framed):
        assert repr(SmallCopy.unpack("a", one.pack())) == repr(one)
        assert SmallCopy.unpack("a", one.pack()).pack() == one.pack()


@settings(max_examples=15)
@given(st.integers(0, 1000))
def test_a_map_shows_what_lies_at_each_place(seed):
    draw = generator(0, "maps", seed)
    images = draw.normal(size=(2, 8, 8)).astype(np.float32)
    maps = (np.eye(3) + draw.uniform(-0.3, 0.3, (2, 3, 3))).astype(np.float32)
    shown = moved._warp(images, maps, moved._places(4))
    for n, row, column in np.ndindex(2, 4, 4):
        place = maps[n, :2] @ [(row + 0.5) / 4 - 0.5, (column + 0.5) / 4 - 0.5, 1]
        y, x = np.clip((place + 0.5) * 8 - 0.5, 0, 7 - 0.001)
        weights = np.maximum(0, 1 - abs(np.arange(8) - y))[:, None] * np.maximum(
            0, 1 - abs(np.arange(8) - x)
        )
        assert shown[n, row, column] == pytest.approx((weights * images[n]).sum(), abs=1e-4)


PHOTOS = Path(os.environ.get("PHOTOS", Path(__file__).parents[2] / "examples" / "photographs"))
# Least share that is found, of photographs and of pages.
LEAST = {
    "half": (0.98, 0.98),
    "quarter": (0.98, 0.8),
    "q50": (0.98, 0.98),
    "q30": (0.98, 0.98),
    "png": (0.98, 0.98),
    "webp": (0.98, 0.98),
    "bright": (0.95, 0.95),
    "gamma": (0.95, 0.95),
    "blur": (0.98, 0.9),
    "sharp": (0.95, 0.9),
    "border": (0.8, 0),
    "cut": (0.5, 0),
}


def write_copies(image: Image.Image, number: int, folder: Path) -> None:
    """Write an image and a copy of each kind."""
    width, height = image.size
    short, long = sorted(image.size)
    cut, gamma = round(0.04 * short), 0.85 if number % 2 else 1.15
    level = [round(255 * (value / 255) ** gamma) for value in range(256)]
    changed = {
        "original": image,
        "half": image.resize((width // 2, height // 2), Image.Resampling.LANCZOS),
        "quarter": image.resize((width // 4, height // 4), Image.Resampling.LANCZOS),
        "q50": image,
        "q30": image,
        "bright": ImageEnhance.Brightness(image).enhance(1.1 if number % 2 else 0.9),
        "gamma": image.point(level * 3),
        "blur": image.filter(ImageFilter.GaussianBlur(max(0.5, long / 1000))),
        "sharp": image.filter(ImageFilter.UnsharpMask(2, 100, 2)),
        "border": ImageOps.expand(image, max(2, short // 50), "white" if number % 2 else "black"),
        "cut": image.crop((cut, cut, width - cut, height - cut)),
    }
    for kind, copy in changed.items():
        quality = int(kind[1:]) if kind in ("q50", "q30") else 90
        copy.save(folder / f"{number:03}-{kind}.jpg", quality=quality)
    image.save(folder / f"{number:03}-png.png")
    image.save(folder / f"{number:03}-webp.webp", quality=80)


@pytest.mark.slow
@pytest.mark.parametrize("column", [0, 1], ids=["photographs", "pages"])
def test_copies_are_found_and_nothing_else(column, tmp_path):
    photographs = sorted(PHOTOS.glob("*.jpg"))[:250]
    for number in range(len(photographs) if column == 0 else 100):
        image = lines(number) if column else Image.open(photographs[number]).convert("RGB")
        write_copies(image, number, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    copies = [read(tmp_path / name) for name in names]
    groups = group_copies(np.zeros((len(names), 1), np.uint8), copies, None)
    mixed = [group for group in groups if len({names[place][:3] for place in group}) > 1]
    group_of = {
        names[place]: number for number, group in enumerate(groups) for place in group.tolist()
    }
    shares = {}
    for kind in LEAST:
        of_kind = [name for name in names if f"-{kind}." in name]
        originals = [group_of.get(f"{name[:3]}-original.jpg", -1) for name in of_kind]
        found = [
            group_of.get(name) == original
            for name, original in zip(of_kind, originals, strict=True)
        ]
        shares[kind] = sum(found) / len(found)
    print({kind: f"{share:.1%}" for kind, share in shares.items()}, "mixed:", len(mixed))
    assert not mixed
    assert all(shares[kind] >= least[column] for kind, least in LEAST.items()), shares
