"""A small tree in MIRFLICKR-25k's exact layout, with its odd cases, and what a reader has to make
of it.
"""

from pathlib import Path

from PIL import Image

TAGS: dict[int, bytes] = {
    1: b"sea\nblue\nnikon\n",
    2: b"sea\r\nsunset\r\n",  # CRLF
    3: b"",  # no tag: removed
    4: b"geo:lat=48.1\n",  # only a machine tag: removed
    5: "café\nsea\n".encode(),  # UTF-8
    6: "façade\nblue\n".encode("latin-1"),  # Latin-1
    7: b"sea\nblue\n",  # no label: removed
    8: b"unique\n",  # no frequent tag: removed where min_tag_count is 2
    9: b"blue\nblue\nsea\n",  # a tag twice
    10: b"sunset\nbeach house\n",  # a tag of two words
}
LABELS: dict[str, str] = {
    "sea": "1\n2\n5\n9\n",
    "sky": "1\r\n6\r\n10\r\n",
    "plant_life": "3\n4\n8\n",
    "night": "",
}
#: With min_tag_count=2: tags sea (5), blue (4), sunset (2) are frequent.
USABLE = ("im1", "im2", "im5", "im6", "im9", "im10")
TEXTS = (
    "sea blue nikon",
    "sea sunset",
    "café sea",
    "façade blue",
    "blue sea",
    "sunset beach house",
)
REMOVED = {"no tag": 2, "no label": 1, "no tag that occurs 2 times": 1}


def write_tree(root: Path) -> Path:
    pictures = root / "mirflickr"
    tags = pictures / "meta" / "tags"
    tags.mkdir(parents=True)
    for number, content in TAGS.items():
        Image.new("RGB", (20, 15), (10 * number, 100, 50)).save(pictures / f"im{number}.jpg")
        (tags / f"tags{number}.txt").write_bytes(content)
    annotations = root / "mirflickr25k_annotations_v080"
    annotations.mkdir()
    # "relevant" labels and a text: not read
    others = {"sea_r1": "1\n", "README": "Annotations of the collection.\n"}
    for name, content in (LABELS | others).items():
        (annotations / f"{name}.txt").write_bytes(content.encode())
    return root
