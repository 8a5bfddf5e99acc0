"""The server that a person would write around FAISS, in thirty lines, beside which serve.py
measures ours.

It answers with ids and distances alone: no metadata, words, filters, writes or limits.
"""

import os
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from channelhash.codes import CodeSet, binarize, pack
from channelhash.models import load_model


class Question(BaseModel):
    """What is searched for."""

    text: str | None = None
    id: str | None = None
    k: int = 10


def make_app() -> FastAPI:
    """Make the application over the file ``CODES`` and the model ``MODEL`` that the environment
    names.
    """
    import faiss

    model, stored = load_model(Path(os.environ["MODEL"])), CodeSet.load(Path(os.environ["CODES"]))
    codes, rows = stored.codes["image"], {name: row for row, name in enumerate(stored.ids)}
    index = faiss.IndexBinaryFlat(stored.n_bits)
    index.add(codes)
    app = FastAPI()

    @app.post("/search")
    def search(question: Question) -> dict[str, list[dict[str, str | int]]]:
        if question.id is None:
            queries = pack(binarize(model.outputs("text", [question.text or ""])))
        else:
            queries = codes[rows[question.id], None]
        distances, found = index.search(queries, question.k)
        pairs = zip(found[0].tolist(), distances[0].tolist(), strict=True)
        return {
            "results": [{"id": stored.ids[row], "distance": distance} for row, distance in pairs]
        }

    return app
