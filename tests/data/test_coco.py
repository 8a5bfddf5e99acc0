"""COCO-style JSON."""

import json

import pytest
from PIL import Image

from channelhash.data.coco import load_coco
from channelhash.data.registry import check_data
from refusals import check_refusal, refusal

INSTANCES = {
    "images": [{"id": 9, "file_name": "9.jpg"}, {"id": 4, "file_name": "4.jpg"}],
    "annotations": [{"image_id": 9, "category_id": 1}, {"image_id": 9, "category_id": 1},
     {"image_id": 9, "category_id": 3}],
    "categories": [{"id": 1, "name": "dog"}, {"id": 3, "name": "car"}, {"id": 7, "name": "bus"}],
}  # fmt: skip
TEXTS = ((4, "An empty street. "), (9, "A dog in a car."), (9, "Another caption."))
CAPTIONS = {"annotations": [{"image_id": image, "caption": text} for image, text in TEXTS]}


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


def test_pictures_alone_and_another_root(tmp_path):
    load(tmp_path)
    (tmp_path / "annotations").mkdir()
    instances = (tmp_path / "instances_x.json").rename(
        tmp_path / "annotations" / "instances_x.json"
    )
    records = load_coco(instances, root=tmp_path)
    assert records.items == {"image": (tmp_path / "9.jpg", tmp_path / "4.jpg")}
    assert records.labels.sum() == 2


WITHOUT_4 = {"annotations": CAPTIONS["annotations"][1:]}


def added(document, key, **entry):
    return {**document, key: [*document[key], entry]}


@pytest.mark.parametrize(
    ("reason", "instances", "captions", "says"),
    [
        (
            "label of a missing image",
            added(INSTANCES, "annotations", image_id=5, category_id=1),
            CAPTIONS,
            "instances_x.json: an annotation is for image 5, which is not listed",
        ),
        (
            "unknown category",
            added(INSTANCES, "annotations", image_id=4, category_id=99),
            CAPTIONS,
            "instances_x.json: image 4 has the unknown category 99",
        ),
        (
            "duplicate id",
            added(INSTANCES, "images", id=4, file_name="4.jpg"),
            CAPTIONS,
            "instances_x.json: the image id 4 occurs twice",
        ),
        (
            "missing picture",
            added(INSTANCES, "images", id=6, file_name="6.jpg"),
            CAPTIONS,
            "instances_x.json: image 6: no such picture {root}/6.jpg",
        ),
        (
            "unreadable picture",
            added(INSTANCES, "images", id=6, file_name="0.jpg"),
            CAPTIONS,
            "instances_x.json: image 6: empty picture {root}/0.jpg",
        ),
        ("empty text", INSTANCES, WITHOUT_4, "captions_x.json: image 4 has no caption"),
        (
            "empty text",
            INSTANCES,
            added(WITHOUT_4, "annotations", image_id=4, caption=" "),
            "captions_x.json: image 4 has no caption",
        ),
        (
            "caption of a missing image",
            INSTANCES,
            added(CAPTIONS, "annotations", image_id=5, caption="A cat."),
            "captions_x.json: a caption is for image 5, which instances_x.json does not list",
        ),
    ],
)
def test_bad_entries_are_named_and_can_be_left_out(tmp_path, reason, instances, captions, says):
    (tmp_path / "0.jpg").write_bytes(b"")
    line = f"{tmp_path}/{says.format(root=tmp_path)}"
    assert (
        refusal(load, tmp_path, instances, captions)
        == f"{line}; mend it, or leave such entries out with skip_bad"
    )
    records = load(tmp_path, instances, captions, skip_bad=True)
    assert records.ids == (("9",) if reason == "empty text" else ("9", "4"))
    assert records.removed == {reason: 1}
    assert records.problems == (line,)


@pytest.mark.parametrize(
    ("key", "entries", "says"),
    [
        ("images", [{"id": 9}], "images[0]: 'file_name' is not there, expected a text"),
        (
            "images",
            [{"id": [9], "file_name": "9.jpg"}],
            "images[0]: 'id' is [9], expected a number or a text",
        ),
        ("images", ["9.jpg"], "images[0]: 'id' is not there, expected a number or a text"),
        ("images", {}, "has no list 'images'; it is not a COCO annotation file of this kind"),
        (
            "annotations",
            [{"image_id": 9}],
            "annotations[0]: 'category_id' is not there, expected a number or a text",
        ),
        ("categories", [{"id": 1, "name": None}], "categories[0]: 'name' is None, expected a text"),
        (
            "categories",
            [*INSTANCES["categories"], {"id": 3, "name": "van"}],
            "category 3 is 'van', elsewhere 'car'; mend it",
        ),
    ],
)
def test_files_of_another_shape_are_named(tmp_path, key, entries, says):
    assert (
        refusal(load, tmp_path, {**INSTANCES, key: entries})
        == f"{tmp_path / 'instances_x.json'}: {says}"
    )


def test_nothing_usable_names_the_first_problem(tmp_path):
    says = (
        f"instances_x.json: no usable row is left of 2: {{'empty text': 2}}; the first problem "
        f"is {tmp_path}"
    )
    message = refusal(load, tmp_path, INSTANCES, {"annotations": []}, skip_bad=True)
    assert message == f"{tmp_path}/{says}/captions_x.json: image 9 has no caption"


def test_missing_and_broken_files_are_named(tmp_path):
    path = tmp_path / "instances_x.json"
    assert refusal(load_coco, path) == f"{path}: no such file"
    path.write_text('{"images": [')
    says = "not JSON, perhaps truncated (Expecting value: line 1 column 13 (char 12))"
    assert refusal(load_coco, path) == f"{path}: {says}"
    assert refusal(load_coco, tmp_path) == f"{tmp_path}: is a folder, not a JSON file"


def write_two_parts(root, categories=INSTANCES["categories"]):
    """The images 9 and 4 in two parts, as COCO's train2014 and val2014."""
    (root / "annotations").mkdir()
    for part, image, own in (("train2014", 9, INSTANCES["categories"]), ("val2014", 4, categories)):
        (root / part).mkdir()
        Image.new("RGB", (8, 8)).save(root / part / f"{image}.jpg")
        images = {
            "images": [entry for entry in INSTANCES["images"] if entry["id"] == image],
            "categories": own,
        }
        for kind, document, more in (("instances", INSTANCES, images), ("captions", CAPTIONS, {})):
            of_image = [entry for entry in document["annotations"] if entry["image_id"] == image]
            (root / "annotations" / f"{kind}_{part}.json").write_text(
                json.dumps({"annotations": of_image} | more)
            )
    kinds = ("instances", "captions")
    return [
        [root / "annotations" / f"{kind}_{part}2014.json" for part in ("train", "val")]
        for kind in kinds
    ]


@pytest.mark.parametrize("with_root", [True, False])
def test_two_parts_are_one_collection(tmp_path, with_root):
    records = load_coco(*write_two_parts(tmp_path), root=tmp_path if with_root else None)
    assert records.ids == ("9", "4")
    assert records.found == 2
    assert records.problems == ()
    assert records.items["image"] == (
        tmp_path / "train2014" / "9.jpg",
        tmp_path / "val2014" / "4.jpg",
    )
    assert records.items["text"] == ("A dog in a car.", "An empty street.")
    assert records.labels.tolist() == [[False, True, True], [False, False, False]]


def test_two_parts_must_not_contradict_each_other(tmp_path):
    instances, captions = write_two_parts(tmp_path, [{"id": 1, "name": "cat"}])
    check_refusal(
        r"val2014\.json: category 1 is 'cat', elsewhere 'dog'", load_coco, instances, captions
    )
    check_refusal("the image id 9 occurs twice", load_coco, [instances[0], instances[0]])
    check_refusal("lists no file", load_coco, [])


@pytest.mark.parametrize("names", ["a.json", ["a.json", "b.json"]])
def test_the_configuration_takes_a_file_or_a_list(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    listed = check_data("coco", {"instances": names})[0].instances
    expected = [tmp_path / name for name in ("a.json", "b.json")]
    assert listed == (expected[0] if names == "a.json" else expected)


def test_a_list_in_print_is_several_captions_of_which_the_first_is_the_text(tmp_path):
    caption = str(["A dog [asleep].", "It dreams."])
    captions = {"annotations": [{"image_id": 9, "caption": caption}]}
    assert load(tmp_path, captions=captions, skip_bad=True).items["text"] == ("A dog [asleep].",)
