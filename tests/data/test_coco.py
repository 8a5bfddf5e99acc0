"""COCO-style JSON."""

import copy
import json

import pytest
from PIL import Image

from channelhash.data.coco import load_coco
from channelhash.errors import InputError

INSTANCES = {
    "images": [{"id": 9, "file_name": "9.jpg"}, {"id": 4, "file_name": "4.jpg"}],
    "annotations": [
        {"image_id": 9, "category_id": 1},
        {"image_id": 9, "category_id": 1},
        {"image_id": 9, "category_id": 3},
    ],
    "categories": [{"id": 1, "name": "dog"}, {"id": 3, "name": "car"}, {"id": 7, "name": "bus"}],
}
CAPTIONS = {
    "annotations": [
        {"image_id": 4, "caption": "An empty street. "},
        {"image_id": 9, "caption": "A dog in a car."},
        {"image_id": 9, "caption": "Another caption."},
    ]
}


def load(root, instances=INSTANCES, captions=CAPTIONS, **options):
    for name in ("9.jpg", "4.jpg"):
        Image.new("RGB", (8, 8)).save(root / name)
    (root / "instances_x.json").write_text(json.dumps(instances))
    (root / "captions_x.json").write_text(json.dumps(captions))
    return load_coco(root / "instances_x.json", root / "captions_x.json", **options)


def test_labels_are_categories_and_texts_are_captions(tmp_path):
    records = load(tmp_path)
    assert records.ids == ("9", "4")
    assert records.items["text"] == ("A dog in a car.", "An empty street.")
    assert records.label_names == ("bus", "car", "dog")
    assert records.labels.tolist() == [[False, True, True], [False, False, False]]
    assert load(tmp_path, all_captions=True).items["text"][0] == "A dog in a car. Another caption."


BAD = {
    "label of a missing image": (
        ("annotations", {"image_id": 5, "category_id": 1}),
        "for image 5, which is not listed",
    ),
    "unknown category": (("annotations", {"image_id": 4, "category_id": 99}), "image 4 has the unknown category 99"),
    "duplicate id": (("images", {"id": 4, "file_name": "4.jpg"}), "the image id 4 occurs twice"),
    "missing picture": (("images", {"id": 6, "file_name": "6.jpg"}), "image 6: no such picture"),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_entries_are_named_and_can_be_left_out(tmp_path, reason):
    (key, entry), says = BAD[reason]
    instances = copy.deepcopy(INSTANCES)
    instances[key].append(entry)
    with pytest.raises(InputError, match=says):
        load(tmp_path, instances)
    records = load(tmp_path, instances, skip_bad=True)
    assert records.ids == ("9", "4")
    assert records.removed == {reason: 1}


def test_a_picture_without_caption_and_files_of_another_kind(tmp_path):
    with pytest.raises(InputError, match="image 4 has no caption"):
        load(tmp_path, captions={"annotations": CAPTIONS["annotations"][1:]})
    with pytest.raises(InputError, match=r"captions_x\.json: has no list 'annotations'"):
        load(tmp_path, captions={"captions": []})
    (tmp_path / "captions_x.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        load_coco(tmp_path / "instances_x.json", tmp_path / "captions_x.json")
