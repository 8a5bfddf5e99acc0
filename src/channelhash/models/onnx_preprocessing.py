"""``onnx:FILE?pixels=…``: features of images by a network in an ONNX file."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from channelhash.data.images import Resize
from channelhash.errors import InputError
from channelhash.models.backbones import Normalize
from channelhash.utils.typed_settings import pick

#: How channels in [0, 1] are normalised before they enter the network: (mean, standard deviation) of R, G, B.
PIXELS = {
    "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}

_BATCH = 32


class OnnxImages:
    """The network in a file, with one input ``(n, 3, s, s)`` float32 and an output ``(n, d)``.

    An image's short side is resized with antialiasing, the centre square is cut out, and x in [0, 1] becomes
    (x − mean) / std for each of R, G and B. Options:

    ``pixels``: mean and std, a name in `PIXELS`; always needed, since the file does not say.
    ``size``: s, where the file leaves it open.
    ``resize``: the short side before cutting; s if left out.
    ``filter``: ``bilinear`` if left out, or ``bicubic``.
    ``output``: name of the output, where there are several.

    Raises:
        InputError: an option is missing or has no such value.
    """

    modalities: ClassVar[tuple[str, ...]] = ("image",)
    options: ClassVar[tuple[str, ...]] = ("pixels", "size", "resize", "filter", "output")

    def __init__(self, what: str, options: Mapping[str, str]) -> None:
        self._path = Path(what).resolve()
        self.what = str(self._path)
        self.file: Path | None = self._path
        self._options = dict(options)
        if "pixels" not in options:
            raise InputError(f"say how its pixels are normalised: onnx:{what}?pixels={'|'.join(PIXELS)}")
        pick(PIXELS, options["pixels"], "pixels")
        pick({"bilinear": 0, "bicubic": 0}, options.get("filter", "bilinear"), "filter")
        for option in ("size", "resize"):
            value = options.get(option, "1")
            if not value.isdecimal() or int(value) < 1:
                raise InputError(f"{option} is {value!r}, expected a number of pixels")

    def load(self, modality: str) -> Callable[[Sequence[Any]], NDArray[np.float32]]:
        """Return the network as a function of images."""
        from channelhash.utils.onnx_runtime import onnxruntime

        if not self._path.is_file():
            raise InputError("no such file")
        available = onnxruntime.get_available_providers()
        providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
        try:
            session = onnxruntime.InferenceSession(str(self._path), providers=providers)
        except Exception as error:  # the library has a type for each of its states
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise InputError(f"not an ONNX file that can be run ({first})") from None
        name, batch, size = self._input(session)
        output = self._output(session)
        short_side = int(self._options.get("resize", size))
        if short_side < size:
            raise InputError(f"resize is {short_side}, less than the network's {size} pixels")
        resize = Resize(size, short_side, "bicubic" if self._options.get("filter") == "bicubic" else "bilinear")
        normalize = Normalize(*PIXELS[self._options["pixels"]])

        def extract(images: Sequence[Any]) -> NDArray[np.float32]:
            parts = [images[start : start + batch] for start in range(0, len(images), batch)]
            return np.concatenate([session.run([output], {name: normalize(resize(part)).numpy()})[0] for part in parts])

        return extract

    def _input(self, session: Any) -> tuple[str, int, int]:
        """Return (name, images at a time, side in pixels) of the network's only input."""
        inputs = session.get_inputs()
        shape = inputs[0].shape if inputs else []
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(shape) != 4 or shape[1] != 3:
            found = " and ".join(f"{given.name} {given.type} {given.shape}" for given in inputs) or "nothing"
            raise InputError(f"takes {found}, expected one input (n, 3, s, s) of float32")
        batch, _, *sides = shape
        sizes = {side for side in sides if isinstance(side, int)}
        if "size" in self._options:
            sizes.add(int(self._options["size"]))
        if len(sizes) > 1:
            raise InputError(f"takes pictures of {sides[0]} × {sides[1]}, expected one size; check size=")
        if not sizes:
            raise InputError("takes pictures of any size; add size=…, as the features were made")
        if isinstance(batch, int) and batch != 1:
            raise InputError(f"takes {batch} pictures at a time; export it for any number, or for 1")
        return inputs[0].name, 1 if batch == 1 else _BATCH, sizes.pop()

    def _output(self, session: Any) -> str:
        names = [output.name for output in session.get_outputs()]
        if "output" in self._options:
            return str(pick({name: name for name in names}, self._options["output"], "output"))
        if len(names) != 1:
            raise InputError(f"has the outputs {', '.join(names)}; add output=… with one of them")
        return str(names[0])
