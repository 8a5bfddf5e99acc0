"""Made inputs of bulk jobs: features that cost little to encode, and an untrained model of them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from channelhash.data.records import Records
from channelhash.lab.benchmarks.metrics import draw_labels
from channelhash.models import MODELS
from channelhash.utils.files import atomic_path
from channelhash.utils.seeds import generator

_WIDTH, _HIDDEN, _N_BITS, _LABELS = 64, 256, 64, 24


def write_model(folder: Path) -> Path:
    """Write an untrained hash head, which costs what a trained one does."""
    features = generator(0, "scale sample").normal(size=(1000, _WIDTH)).astype(np.float32)
    records = Records(tuple(map(str, range(1000))), {"image": features}, np.ones((1000, 1), dtype=bool), ("label",))
    torch.manual_seed(0)
    MODELS["features"].create(records, _N_BITS, hidden=[_HIDDEN]).save_pretrained(folder)
    return folder


def write_features(path: Path, n: int, rows: int) -> None:
    """Write items whose features are their labels' directions plus noise, in groups of so many rows."""
    directions = generator(0, "scale directions").normal(size=(_LABELS, _WIDTH)).astype(np.float32)
    names = pa.array([f"label {j}" for j in range(_LABELS)])
    path.parent.mkdir(parents=True)
    with atomic_path(path) as temporary:
        writer = None
        for start in range(0, n, rows):
            count = min(rows, n - start)
            labels = draw_labels(count, _LABELS, f"part {start}")
            noise = generator(0, "scale noise", start).normal(size=(count, _WIDTH)).astype(np.float32)
            offsets = np.concatenate([[0], np.cumsum(labels.sum(axis=1))]).astype(np.int32)
            table = pa.table(
                {
                    "id": [str(i) for i in range(start, start + count)],
                    "image": pa.FixedSizeListArray.from_arrays(pa.array((labels @ directions + noise).ravel()), _WIDTH),
                    "labels": pa.ListArray.from_arrays(offsets, names.take(pa.array(np.nonzero(labels)[1]))),
                }
            )
            writer = writer or pq.ParquetWriter(temporary, table.schema)
            writer.write_table(table)
        assert writer is not None  # n is at least 1
        writer.close()
