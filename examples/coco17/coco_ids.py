"""Find the rows of COCO-17 among the images of MS-COCO, by the official annotations.

    python examples/coco17/coco_ids.py coco_ids.csv --annotations annotations python
    examples/coco17/coco_ids.py coco_ids.csv --annotations annotations --photographs train2014 --out
    coco17

The first line reads ``captions_train2014.json`` and ``instances_train2014.json``. It writes a line
for each row that it finds: number of the image, its file, its address at Flickr and its licence.
The second line writes ``items.csv`` and ``images/`` of these rows as well, from the official
photographs.

A row is found where an image has its caption (letters and digits alone: the published table lost
some punctuation) and twice its width and height, give or take two pixels. Of several such images
the one with the row's labels is taken; if that is not one image, the row is left out.
"""

import argparse
import csv
import io
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from make_coco17 import ROWS, Row, caption_digits, label_names, read_rows, write_images, write_items

from channelhash.errors import InputError
from channelhash.utils.decode import reading
from channelhash.utils.files import write_text

SLACK = 2  # pixels
COLUMNS = ("id", "coco_id", "file_name", "same_labels", "flickr_url", "license")


class Official(NamedTuple):
    """What is read of the official annotations.

    Attributes:
        images: number -> entry of ``images``.
        captioned: digits of a caption, see `caption_digits` -> number of an image -> the caption.
        labels: number -> labels in the order of the categories, separated by ``;``.
        licenses: number -> address.
    """

    images: Mapping[int, dict[str, Any]]
    captioned: Mapping[str, Mapping[int, str]]
    labels: Mapping[int, str]
    licenses: Mapping[int, str]


def read_official(folder: Path, part: str = "train2014") -> Official:
    """Read the two files of annotations of a part of MS-COCO.

    Raises:
        InputError: a file is missing or has another format.
    """
    captions, instances = (
        _json(folder / f"{kind}_{part}.json") for kind in ("captions", "instances")
    )
    with reading(folder, "no official annotations"):
        captioned: dict[str, dict[int, str]] = defaultdict(dict)
        for annotation in captions["annotations"]:
            captioned[caption_digits(annotation["caption"])][annotation["image_id"]] = annotation[
                "caption"
            ]
        categories: dict[int, set[int]] = defaultdict(set)
        for annotation in instances["annotations"]:
            categories[annotation["image_id"]].add(annotation["category_id"])
        labels = {image: label_names(numbers) for image, numbers in categories.items()}
        images = {image["id"]: image for image in captions["images"]}
        licenses = {license["id"]: license["url"] for license in captions["licenses"]}
    return Official(images, captioned, labels, licenses)


def find_image(row: Row, official: Official) -> int | None:
    """Return the number of a row's image, or None if no image fits, or several do."""
    fitting = [
        number
        for number in official.captioned.get(row.caption, {})
        if all(
            abs(official.images[number][side] - 2 * pixels) <= SLACK
            for side, pixels in zip(("width", "height"), row.size, strict=True)
        )
    ]
    if len(fitting) > 1:
        fitting = [number for number in fitting if official.labels.get(number, "") == row.labels]
    return fitting[0] if len(fitting) == 1 else None


def write_ids(found: Sequence[tuple[Row, int]], official: Official, path: Path) -> None:
    """Write the rows that were found, with their images."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row, number in found:
        image = official.images[number]
        same = int(official.labels.get(number, "") == row.labels)
        license = official.licenses.get(image["license"], "")
        writer.writerow(
            [row.id, number, image["file_name"], same, image.get("flickr_url", ""), license]
        )
    write_text(path, text.getvalue())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a row was not found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path, help="table to write, .csv")
    parser.add_argument(
        "--annotations", type=Path, required=True, help="folder of the official annotations"
    )
    parser.add_argument(
        "--photographs", type=Path, help="folder of the official photographs, to write images too"
    )
    parser.add_argument("--out", type=Path, help="folder for items.csv and images/")
    options = parser.parse_args(arguments)
    if (options.photographs is None) != (options.out is None):
        raise InputError("--photographs and --out go together")
    rows, official = read_rows(ROWS), read_official(options.annotations)
    numbers = [find_image(row, official) for row in rows]
    found = [(row, number) for row, number in zip(rows, numbers, strict=True) if number is not None]
    same = sum(official.labels.get(number, "") == row.labels for row, number in found)
    write_ids(found, official, options.table)
    print(f"{len(found):,} of {len(rows):,} rows found, {same:,} of them with the same labels")
    if options.out:
        photographs = [
            options.photographs / official.images[number]["file_name"] for _, number in found
        ]
        write_images([row for row, _ in found], photographs, options.out / "images")
        captions = [official.captioned[row.caption][number].strip() for row, number in found]
        write_items([row for row, _ in found], captions, options.out / "items.csv")
    return len(found) < len(rows)


def _json(path: Path) -> dict[str, Any]:
    """Read a file of annotations without outlines of objects, which are most of it."""

    def without_outlines(read: dict[str, Any]) -> dict[str, Any]:
        read.pop("segmentation", None)
        return read

    with reading(path, "not a file of annotations"), open(path, encoding="utf-8") as opened:
        content: dict[str, Any] = json.load(opened, object_hook=without_outlines)
    return content


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InputError, OSError) as error:
        sys.exit(str(error))
