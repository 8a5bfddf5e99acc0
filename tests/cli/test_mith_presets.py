"""The commands of MITH's protocol, dry, on small archives of the collections' layout."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from data import mirflickr_tree, nuswide_tree
from picture_runs import tiny_clip
from small_runs import run_json


def write_coco(root: Path) -> Path:
    """Two parts of a collection in COCO's layout, eight images with a label and two without, as the page's table."""
    (root / "annotations").mkdir()
    for part, numbers in (("train2014", range(6)), ("val2014", range(6, 10))):
        (root / part).mkdir()
        images = [{"id": number, "file_name": f"{number}.jpg"} for number in numbers]
        for image in images:
            Image.new("RGB", (40, 30), (20 * image["id"], 90, 60)).save(root / part / image["file_name"])
        labels = [{"image_id": number, "category_id": number % 4} for number in numbers if number % 4 < 3]
        document = {"images": images, "annotations": labels + labels[:1]}
        names = ("cat", "fire hydrant", "cup", "tie")
        document["categories"] = [{"id": i, "name": name} for i, name in enumerate(names)]
        (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(document))
        captions = [{"image_id": number, "caption": f"Number {number}, with a comma."} for number in numbers]
        (root / "annotations" / f"captions_{part}.json").write_text(json.dumps({"annotations": captions}))
    page = (Path(__file__).parents[2] / "docs" / "reference" / "mith.md").read_text(encoding="utf-8")
    script = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "coco80.csv" in block)
    exec(script, {})
    return root / "coco80.csv"


@pytest.mark.parametrize(("preset", "place", "write", "usable"), [
    ("mith-mirflickr25k", "root", mirflickr_tree.write_tree, 6),
    ("mith-nuswide21", "root", nuswide_tree.write_tree, 6),
    ("mith-coco80", "path", write_coco, 8),
])  # fmt: skip
def test_mith_presets_run_dry(preset, place, write, usable, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = {f"data.{place}": write(tmp_path), "data.queries": 1, "data.train": 3, "data.validation_queries": 1}
    settings |= {"model.backbone": tiny_clip(tmp_path / "tiny.json"), "model.pretrained": "null"}
    settings |= {"train.batch_size": 2, "train.device": "cpu"}
    if preset == "mith-mirflickr25k":
        settings["data.min_tag_count"] = 2
    arguments = [f"--set={key}={value}" for key, value in settings.items()]
    plan = run_json(capsys, "train", "--preset", preset, "--dry-run", *arguments)
    assert (plan["parameters"]["frozen"], plan["features"]) == (0, "online")
    assert sum(plan["rows"][part] for part in ("query", "retrieval")) == usable
