"""A small tree in NUS-WIDE's exact layout, with a duplicated id, and what a reader has to make of
it.
"""

from pathlib import Path

from PIL import Image

ENTRIES = [
    "actor\\0001_2124494179.jpg",
    "actor\\0002_174174086.jpg",
    "zebra\\0003_702409954.jpg",
    "zebra\\0004_702409954.jpg",  # an id that occurs twice
    "sky\\0005_11.jpg",
    "sky\\0006_12.jpg",
]
LABELS = {
    "animal": [0, 0, 1, 1, 0, 0],
    "sky": [1, 0, 0, 0, 1, 0],
    "person": [1, 1, 0, 0, 0, 0],
    "castle": [0, 0, 0, 0, 0, 1],  # the rarest: left out where three labels are kept
}
TAGS = (
    "2124494179 cloud Paris cloud \r\n174174086\r\n702409954 zebra\n11 café sky\n12 old castle\n\n"
)
#: With n_labels=3: castle is dropped, and with it the sample 12.
USABLE = ("2124494179", "174174086", "702409954", "702409954", "11")
TEXTS = ("cloud Paris", "", "zebra", "zebra", "café sky")
LABEL_SETS = [{"person", "sky"}, {"person"}, {"animal"}, {"animal"}, {"sky"}]
REMOVED = {"none of the 3 labels": 1}


def write_tree(root: Path, layout: str = "Flickr/{folder}/{name}", encoding: str = "utf-8") -> Path:
    files = {"ImageList/Imagelist.txt": "\r\n".join(ENTRIES), "NUS_WID_Tags/All_Tags.txt": TAGS}
    for name, column in LABELS.items():
        files[f"Groundtruth/AllLabels/Labels_{name}.txt"] = "".join(
            f"{value}\n" for value in column
        )
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode(encoding))
    for entry in ENTRIES:
        folder, name = entry.split("\\")
        path = root / layout.format(
            folder=folder, name=name, id=name.split("_")[1].removesuffix(".jpg")
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 12)).save(path)
    return root
