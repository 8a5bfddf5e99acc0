"""Read the text in pictures, with the networks that the package `rapidocr` brings.

Where text may stand is looked for in a small picture, which is all that a photograph without text takes. Each line is
then cut out of a larger one and read; what the network is unsure of is left out.
"""

from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from channelhash.utils.optional_imports import library, naming_extra, onnx_runtime, package_file

#: Side to which an image may be reduced where it is decoded.
TEXT_SIDE = 853
# Long sides in pixels: of what text is looked for in, and of what it is cut out of. Smaller pictures are enlarged, to
# twice their side at most.
_LOOK, _READ = 640, 1280
# Pixels of a short side below which there is no room for a line.
_LOWEST = 16
# Confidence from which a line counts that has two letters or digits: one of 200 photographs without text got some.
_SURE = 0.6
_MODELS = {
    "Det": ("PP-OCRv6_det_small", "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f"),
    "Cls": ("ch_ppocr_mobile_v2.0_cls_mobile", "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
    "Rec": ("PP-OCRv6_rec_small", "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"),
}


def read_text(image: Image.Image) -> str:
    """Return the lines of text in an upright picture, lines that stand on their heads, too.

    >>> read_text(Image.new("RGB", (64, 48), "white"))
    ''
    """
    long = max(image.size)
    scale = min(_READ, max(long, min(2 * long, _LOOK))) / long
    width, height = (round(scale * side) for side in image.size)
    if min(width, height) < _LOWEST:
        return ""
    resized = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2)
    found = open_reader()(np.ascontiguousarray(np.asarray(resized)[:, :, ::-1]))  # as OpenCV orders colours
    return "\n".join(line for line in found.txts or () if sum(map(str.isalnum, line)) > 1)


@cache
def open_reader() -> Any:
    """Open the networks; one thread reads a picture, so that nothing of them is lost in a fork.

    >>> open_reader() is open_reader()
    True
    """
    with naming_extra("photos"):
        onnx_runtime()
    engine = library("rapidocr", "ocr").RapidOCR
    files = {
        f"{part}.model_path": str(package_file("rapidocr", f"models/{name}.onnx", sha256, "ocr"))
        for part, (name, sha256) in _MODELS.items()
    }
    one_thread = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    settings = {"log_level": "critical", "use_preprocess_img": False, "text_score": _SURE}
    # Dilation makes one of lines that are close together.
    looking = {"Det.limit_type": "max", "Det.limit_side_len": _LOOK, "Det.use_dilation": False}
    return engine(params={**files, **one_thread, **looking, **{f"Global.{key}": settings[key] for key in settings}})
