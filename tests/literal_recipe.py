"""Codes by an exported file and what ``export.json`` says, without channelhash: the description
transcribed.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def exported_outputs(folder: Path, modality: str, items, batch: int) -> np.ndarray:
    """Real-valued outputs of raw items (rows, for features), ``batch`` at a time."""
    entry = json.loads((folder / "export.json").read_text(encoding="utf-8"))["modalities"][modality]
    inputs = prepared(entry["prepare"], items)
    assert str(inputs.dtype) == entry["input"]["dtype"]
    for n, expected in zip(inputs.shape[1:], entry["input"]["shape"][1:], strict=True):
        assert expected == n
    session = onnxruntime.InferenceSession(
        str(folder / entry["file"]), providers=["CPUExecutionProvider"]
    )
    names = [entry["output"]["name"]], entry["input"]["name"]
    parts = [
        session.run(names[0], {names[1]: inputs[i : i + batch]})[0]
        for i in range(0, len(inputs), batch)
    ]
    return np.concatenate(parts)


def exported_codes(folder: Path, modality: str, items, batch: int) -> np.ndarray:
    """Packed codes of raw items (rows, for features), ``batch`` at a time."""
    description = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    return packed(
        exported_outputs(folder, modality, items, batch),
        description["n_bits"],
        description["bytes"],
    )


def packed(outputs: np.ndarray, n_bits: int, n_bytes: int) -> np.ndarray:
    codes = np.zeros((len(outputs), n_bytes), np.uint8)
    for row, values in enumerate(outputs):
        assert len(values) == n_bits
        for j, value in enumerate(values):
            if value >= 0:
                codes[row, j // 8] |= 1 << (7 - j % 8)
    return codes


def prepared(recipe: dict, items) -> np.ndarray:
    if recipe["kind"] == "features":
        return np.asarray(items, dtype=np.float32)
    if recipe["kind"] == "pixels":
        return np.stack([pixels(recipe, item) for item in items])
    if recipe["kind"] == "open_clip":
        return clip_tokens(recipe, items)
    return np.stack([tokens(recipe, item) for item in items])


def tokens(recipe: dict, text: str) -> np.ndarray:
    words = [word.strip(recipe["punctuation"]) for word in text.lower().split()]
    words = [word for word in words if word]
    ids = [recipe["words"].index(word) + 1 for word in words if word in recipe["words"]]
    ids = ids[: recipe["max_tokens"]]
    return np.array(ids + [recipe["padding"]] * (recipe["max_tokens"] - len(ids)), np.int32)


def clip_tokens(recipe: dict, texts) -> np.ndarray:
    import open_clip

    assert recipe["tokenizer"] == "open_clip.SimpleTokenizer"
    tokenizer = open_clip.SimpleTokenizer(context_length=recipe["context_length"])
    return tokenizer([recipe["prompt"].replace("{}", text) for text in texts]).numpy()


def pixels(recipe: dict, path: Path) -> np.ndarray:
    size, method = recipe["size"], Image.Resampling[recipe["filter"].upper()]
    picture = Image.open(path)
    if recipe.get("reduced"):
        picture.draft("RGB", (2 * recipe["short_side"],) * 2)
    picture = ImageOps.exif_transpose(picture)
    if recipe["resize"] == "square":
        width, height = picture.size
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        picture = picture.convert("RGB").resize(
            (size, size), method, box=(left, top, left + side, top + side)
        )
    elif recipe["resize"] == "shortest":
        picture = picture.convert("RGB")
        short, long = sorted(picture.size)
        wanted = recipe["short_side"], int(recipe["short_side"] * long / short)
        width, height = wanted if picture.width <= picture.height else wanted[::-1]
        left, top = round((width - size) / 2), round((height - size) / 2)
        picture = picture.resize((width, height), method).crop((left, top, left + size, top + size))
    elif recipe["resize"] == "squash":
        picture = picture.convert("RGB").resize((size, size), method)
    else:
        assert recipe["resize"] == "longest"
        picture = ImageOps.pad(
            picture.convert("RGB"), (size, size), method, color=(recipe["fill"],) * 3
        )
    return np.asarray(picture).transpose(2, 0, 1)
