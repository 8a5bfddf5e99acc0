"""The contact sheet of a level says all that was done to a picture."""

import numpy as np
import pytest
from PIL import Image

from channelhash.augment import preview
from channelhash.augment.progressive import Progression, Step, plan
from channelhash.utils.image_grid import wrap


def test_an_operation_is_described_with_its_parameters():
    step = Step("picture_in_picture", {"scale": 0.1234, "x": 0.3, "y": 0.4}, partner=7)
    assert preview.describe(step) == "picture in picture 0.12"
    jitter = {"brightness": 0.8, "contrast": 1.2, "saturation": 1.0, "hue": -0.1}
    assert preview.describe(Step("color_jitter", jitter)) == "color jitter 0.8 1.2 1 -0.1"


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_captions_have_room_for_every_operation(tmp_path, monkeypatch, level):
    path, sheets = tmp_path / "picture.png", []
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)).save(path)
    monkeypatch.setattr(preview, "write_contact_sheet", lambda rows, out, lines: sheets.append((rows, lines)))
    preview.write_preview([path], level, tmp_path / "sheet.png", seed=3, variants=80)
    (((first, *cells),), lines) = sheets[0]
    assert first.caption == "picture.png"
    assert len(cells) == 80
    for epoch, cell in enumerate(cells):
        drawn = [preview.describe(step) for step in plan(Progression(3, 1, level=level), epoch, 0)]
        shown = wrap(cell.caption)[:lines]
        assert " ".join(shown) == (" ".join(drawn) or "unchanged")
