"""Saved models in words: their ``config.json`` and card, and the words that name encoders; read
without PyTorch.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import yaml
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.codes.stage import Stage
from channelhash.errors import InputError, JobError, argument
from channelhash.utils.decode import check_exhausted, read_json, reading
from channelhash.utils.files import atomic_path, write_text
from channelhash.utils.hashes import content_hash
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.typed_settings import check_trusted, naming_own_code, trusting

if TYPE_CHECKING:
    from PIL import Image

    from channelhash.data.records import RawItems


class QueryEncoder(Protocol):
    """What encodes queries: a `HashModel`, a `FittedModel` or an `ExportedModel`, whose docstrings
    say more.

    Attributes:
        batch_size: number of items whose outputs are computed at a time.
        not_finite: what is said of an item whose outputs are not finite.
    """

    n_bits: int
    code_spaces: tuple[str, ...] = ()
    extends: tuple[str, ...] = ()
    batch_size: int = 256
    not_finite: str

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities that it encodes."""

    def outputs_of_batch(self, modality: str, items: Any) -> Any:
        """Compute outputs, a tensor or an array, of at most ``batch_size`` raw items."""

    def outputs(self, modality: str, items: Any, progress: Progress = no_progress) -> Any:
        """Compute real-valued outputs of ``n`` raw items batch by batch; `JobError` if one is not
        finite. The k whose signs are the code come first.
        """
        batches = list[NDArray[np.float32]]()
        for start in range(0, len(items), self.batch_size):
            batches.append(
                np.asarray(self.outputs_of_batch(modality, items[start : start + self.batch_size]))
            )
            broken = np.flatnonzero(~np.isfinite(batches[-1]).all(axis=1))
            if len(broken):
                row = start + int(broken[0])
                name = f" ({items[row]})" if isinstance(items[row], str | Path) else ""
                raise JobError(f"{modality} in row {row}{name}: {self.not_finite}")
            progress(min(start + self.batch_size, len(items)), len(items))
        return np.concatenate(batches) if batches else np.empty((0, self.n_bits), np.float32)

    def fingerprint(self) -> str:
        """Return the fingerprint of the model."""

    def comparable(self, model: str) -> bool:
        """Return whether its codes can be compared with those of the model with the fingerprint
        ``model``.
        """
        return model in (self.fingerprint(), *self.code_spaces, *self.extends)


class Model(QueryEncoder, Protocol):
    """What also encodes new items: a `HashModel` of PyTorch or a `FittedModel`."""

    name: str
    architecture: dict[str, Any]

    @property
    def stage(self) -> Stage:
        """How a store keeps vectors of its items beside their codes: the outputs themselves."""
        return Stage(self.n_bits)

    def corrected_stage(self, captions: Sequence[str] = ()) -> Stage:
        """Return the stage with a bank of texts, where the model has one (`codes.hubs`), which
        ``captions`` of some images join.
        """
        return self.stage

    def takes_rows(self, modality: str) -> bool:
        """Return whether the items of a modality may be rows of features."""

    def prepare(self, modality: str, items: Any) -> Any:
        """Prepare raw items as inputs."""

    def outputs_prepared(self, inputs: Any) -> Mapping[str, Any]:
        """Compute outputs ``(n, k)`` by modality of inputs, tensors or arrays."""

    def outputs_of_batch(self, modality: str, items: Any) -> Any:
        """Prepare raw items, and compute their outputs."""
        return self.outputs_prepared({modality: self.prepare(modality, items)})[modality]

    def _description(self) -> dict[str, Any]:
        """Return, JSON-able, what its codes depend on besides the weights; its ``config.json``
        holds this.
        """

    def save_pretrained(self, folder: Path, /) -> Any:
        """Save it in a folder."""

    @classmethod
    def _build(cls, config: dict[str, Any], folder: Path) -> Self:
        """Build a model that was saved in a folder of what its description says."""

    @classmethod
    def _load(cls, folder: Path, trust_code: bool) -> Self:
        """Read a description and build the model; `InputError` where this cannot be, or lacks
        consent to run code.
        """
        file = folder / "config.json"
        if not file.exists():
            raise InputError(f"{folder}: no config.json, this is not a saved model")
        with reading(file, "not a model this version can build"):
            config = read_description(file)
            with trusting(trust_code):
                check_trusted(config, file)
            with naming_own_code():
                model = cls._build(config, folder)
            if config.get("preprocessing") != model._description().get("preprocessing"):
                raise ValueError(
                    "it was made for images that were read in another way; train or fit it again"
                )
        return model

    def encode(
        self, modality: str, items: "RawItems", progress: Progress = no_progress
    ) -> PackedCodes:
        """Encode raw items as packed codes ``(n, ceil(k / 8))`` uint8; arguments and errors as in
        `outputs`.
        """
        return pack(binarize(self.outputs(modality, items, progress)[:, : self.n_bits]))

    def encode_images(self, images: "Sequence[Path | str | Image.Image]") -> PackedCodes:
        """Encode image files or opened images as packed codes ``(n, ceil(k / 8))`` uint8."""
        return self.encode("image", images)  # type: ignore[arg-type]  # opened images too

    def encode_texts(self, texts: Sequence[str]) -> PackedCodes:
        """Encode texts as packed codes ``(n, ceil(k / 8))`` uint8."""
        return self.encode("text", texts)


def fingerprint_of(
    description: Mapping[str, Any], weights: Mapping[str, NDArray[Any]] | None = None
) -> str:
    """Hash a model's description and weights.

    Extractors do not count: people change them when a model moves to another machine.

    >>> fingerprint_of({"architecture": {"extractors": {}}}) == fingerprint_of({"architecture": {}})
    True
    """
    counted = dict(description)
    if isinstance(counted.get("architecture"), dict):
        counted["architecture"] = {
            key: v for key, v in counted["architecture"].items() if key != "extractors"
        }
    parts = [json.dumps(counted, sort_keys=True).encode()]
    for name, values in sorted((weights or {}).items()):
        parts += [name.encode(), values.tobytes()]
    return content_hash(*parts)[:16]


#: A word, or modality -> the name of its extractor.
EncoderWord = str | Mapping[str, str]

#: Forms of the word, and what each names.
ENCODER_FORMS = {
    "photo": "the encoder that is there after pip install 'channelhash[photos]'",
    "photo-backbones": "the two networks of photo as they are",
    "openclip:NAME/WEIGHTS": (
        "a model of OpenCLIP, its tag or file of weights; NAME may be a .json configuration"
    ),
    "onnx:FOLDER": (
        "ONNX files as optimum and Transformers.js write them; FOLDER@q4 where there are several"
    ),
    "image=KIND:WHAT": "an extractor for each modality (`extractors`), one or two such words",
    "features": "the items are features already",
    "python:module:NAME": "a function of your own that returns an `Encoder`",
}
#: The encoder of items that are features already, which needs to know their widths.
FEATURES = "features"
#: How codes were fitted that a `Compressor` made.
COMPRESSOR = "compressor"


def read_words(words: list[str]) -> EncoderWord:
    """Return the encoder that the words of a command name: one word, or ``MODALITY=KIND:WHAT`` for
    each modality.

    >>> read_words(["photo"]), read_words(["image=torchvision:resnet50", "text=python:own:embed"])
    ('photo', {'image': 'torchvision:resnet50', 'text': 'python:own:embed'})
    """
    pairs = [word.partition("=") for word in words if word.startswith(("image=", "text="))]
    if not pairs and len(words) == 1:
        return words[0]
    if len(pairs) != len(words) or len({modality for modality, _, _ in pairs}) < len(pairs):
        raise InputError(
            f"{argument('encoder')} {' '.join(words)}: name one encoder, or image=KIND:WHAT and "
            "text=KIND:WHAT"
        )
    return {modality: name for modality, _, name in pairs}


def extra_of(word: EncoderWord | None) -> str:
    """Return the extra of this package that brings what an encoder needs; None is the default
    encoder of pictures.

    >>> extra_of(None), extra_of("openclip:ViT-B-32/openai"), extra_of("runs/a")
    ('photos', 'clip', 'train')
    >>> extra_of({"image": "python:a:b"})
    'extractors'
    """
    if word is not None and not isinstance(word, str):
        return "extractors"
    kind = (word or "photo").partition(":")[0]
    extras = {
        "photo": "photos",
        "photo-backbones": "photos",
        "openclip": "clip",
        "onnx": "encoders",
    }
    return extras.get(kind, "train")


def split_source(pretrained: str) -> tuple[str | None, Path | None, str]:
    """Split a setting ``pretrained`` into tag and file: ``TAG``, ``FILE``, or ``TAG@FILE`` for the
    tag's weights.

    No tag has a slash, so what has one before its ``@`` is a file.

    Returns:
        The tag, the file with an absolute path, and both in one string.

    Raises:
        InputError: nothing follows the ``@``.

    >>> split_source("DEFAULT"), split_source("DEFAULT@weights.pt")[1].name
    (('DEFAULT', None, 'DEFAULT'), 'weights.pt')
    """
    tag, at, file = pretrained.partition("@")
    if "/" in tag or (not at and _looks_like_file(pretrained)):
        path = Path(pretrained).resolve()
        return None, path, str(path)
    if not at:
        return tag or None, None, pretrained
    if not file:
        raise InputError(f"{pretrained}: no file follows the @; write TAG, FILE or TAG@FILE")
    path = Path(file).resolve()
    return tag or None, path, f"{tag}@{path}" if tag else str(path)


def _looks_like_file(pretrained: str) -> bool:
    return Path(pretrained).is_file() or bool(Path(pretrained).suffix)


def model_card(
    name: str,
    n_bits: int,
    modalities: tuple[str, ...],
    parameters: int,
    fingerprint: str,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Write the card as Markdown with the front matter of a model hub.

    >>> model_card("small", 16, ("text",), 5, "abc").splitlines()[5]
    '# Text hashing, 16 bits'
    """
    if name == "features":
        encode = f'encode("{modalities[0]}", features)  # rows (n, d) of what it was trained on'
    elif "image" in modalities:
        encode = 'encode_images(["photo.jpg"])'
    else:
        encode = 'encode_texts(["a dog on a beach"])'
    training = ""
    if settings:
        written = yaml.safe_dump(dict(settings), sort_keys=False)
        training = f"\n## Training\n\n```yaml\n{written}```\n"
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return template.format(
        name=name,
        n_bits=n_bits,
        n_bytes=-(-n_bits // 8),
        modalities=" and ".join(f"{modality}s" for modality in modalities),
        parameters=parameters,
        fingerprint=fingerprint,
        tags=", ".join(modalities),
        title=f"{' and '.join(modalities)} hashing, {n_bits} bits".capitalize(),
        encode=encode,
        training=training,
    )


_CHECKSUM = "checksum"


def read_description(path: Path) -> dict[str, Any]:
    """Read a ``config.json``; one that a person has edited may have no checksum."""
    description = read_json(path, "is damaged", "restore it, or save the model again")
    if description.pop(_CHECKSUM, None) not in (None, fingerprint_of(description)):
        raise InputError(
            f"{path}: has changed since it was saved; restore it or, if you have edited it, remove "
            f"its {_CHECKSUM!r}"
        )
    return description


def fit_facts(description: Mapping[str, Any]) -> dict[str, str]:
    """Return facts for people about a saved model: its encoder, and how its codes were fitted; of
    others, nothing.

    >>> fit = {"encoder": "photo", "codes": "itq", "fitted_on": 1000, "widths": {"image": 1280}}
    >>> fit_facts({"name": "fitted", "architecture": fit})
    {'encoder': 'photo', 'fitted': 'itq to 1,000 images; no captions join texts to them'}
    """
    if description.get("name") != "fitted":
        return {}
    architecture = description["architecture"]
    codes = architecture["codes"]
    modalities = list(architecture["widths"])
    whole = {"learned": "learned codes of the encoder", COMPRESSOR: "a compressor of vectors"}
    if codes in whole:
        return {"encoder": in_one_word(architecture["encoder"]), "fitted": whole[codes]}
    n = architecture["fitted_on"]
    items = "pairs of image and text" if codes == "cca-itq" else f"{_fitted_to(modalities)}s"
    fitted = f"{codes} to {n:,} {items}"
    if modalities == ["image"]:
        fitted += "; no captions join texts to them"
    return {
        "encoder": in_one_word(architecture.get("extractors") or architecture["encoder"]),
        "fitted": fitted,
    }


def _fitted_to(modalities: Sequence[str]) -> str:
    """Return the modality that codes were fitted to; texts are encoded as the others are."""
    return min(modalities, key=lambda name: (name == "text", name))


def in_one_word(word: str | Mapping[str, str]) -> str:
    """Return a word as it is written on a command line.

    >>> in_one_word({"image": "torchvision:resnet50"})
    'image=torchvision:resnet50'
    """
    if isinstance(word, str):
        return word
    return " ".join(f"{modality}={name}" for modality, name in sorted(word.items()))


def _weights_checksum(content: bytes) -> str:
    """Return a checksum of the tensors in the content of a safetensors file, with their names,
    types and shapes.

    >>> from safetensors.numpy import save
    >>> import numpy as np
    >>> weights = {"a": np.zeros(2)}
    >>> _weights_checksum(save(weights)) == _weights_checksum(save(weights, {"of": "example"}))
    True
    """
    import safetensors

    parts: list[bytes] = []
    for name, tensor in sorted(safetensors.deserialize(content)):  # type: ignore[no-untyped-call]
        parts += [f"{name} {tensor['dtype']} {list(tensor['shape'])}".encode(), tensor["data"]]
    return content_hash(*parts)


def write_model(
    folder: Path, save: Callable[..., bytes], weights: Mapping[str, Any], description: Any
) -> None:
    """Write weights, by safetensors' ``save`` for tensors or arrays, and the description, each with
    its checksum.

    >>> import tempfile
    >>> from safetensors.numpy import save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model(Path(folder), save, {}, {"name": "small"})
    ...     damaged_files(Path(folder))
    []
    """
    with atomic_path(folder / "model.safetensors") as path:
        # Not `save_file`: only the owner may read its files.
        path.write_bytes(save(weights, {_CHECKSUM: _weights_checksum(save(weights))}))
    write_text(
        folder / "config.json",
        json.dumps(description | {_CHECKSUM: fingerprint_of(description)}, indent=2),
    )


@contextmanager
def reading_weights(path: Path) -> Iterator[None]:
    """Raise what goes wrong with a file of weights in the block as `InputError`, or `JobError` if
    handles are short.
    """
    try:
        open(path, "rb").close()  # libraries call a file missing where no handle is left
    except OSError as error:
        check_exhausted(error, path)
        raise InputError(f"{path}: weights cannot be read ({error.strerror})") from None
    with reading(path, "weights cannot be read"):
        yield


def read_checked(path: Path) -> bytes:
    """Read the safetensors file of a saved model, which says its `_weights_checksum`."""
    with reading_weights(path):
        content = path.read_bytes()
        checksum = _weights_checksum(content)
        length = int.from_bytes(content[:8], "little")
        expected = json.loads(content[8 : 8 + length]).get("__metadata__", {}).get(_CHECKSUM)
    if expected not in (None, checksum):
        raise InputError(
            f"{path}: is damaged: the weights have changed since they were saved; restore the file"
        )
    return content


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays in the safetensors file of a saved model; errors as in `read_checked`."""
    from safetensors.numpy import load

    return load(read_checked(path))


def damaged_files(folder: Path) -> list[str]:
    """Read the files of a saved model, without building it; return a line for each damaged one.

    >>> damaged_files(Path("none"))
    ['config.json: is missing', 'model.safetensors: is missing']
    """
    files = []
    for name, read in (("config.json", read_description), ("model.safetensors", read_checked)):
        path = folder / name
        try:
            if path.exists():
                read(path)
            else:
                files.append(f"{name}: is missing")
        except (InputError, OSError) as error:
            if isinstance(error, OSError):
                check_exhausted(error, path)
            files.append(f"{name}: {str(error).removeprefix(f'{path}: ')}")
    return files
