"""Files of vectors in each form that people have."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from extras import needs

#: Ending of a file -> the extra that reads and writes it.
EXTRAS = {".parquet": "parquet", ".h5": "mat"}


def needs_form(path: Path) -> None:
    """Leave out the test where nothing reads files of this ending."""
    if path.suffix in EXTRAS:
        needs(EXTRAS[path.suffix])


def write_vectors(path: Path, values: Any, ids: list[Any], **columns: Any) -> None:
    """Write vectors as the ending says, with ids and further columns where the form has them."""
    needs_form(path)
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, embeddings=values)
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        lists = pa.array(list(map(list, values)), pa.list_(pa.float32()))
        pq.write_table(pa.table({"id": ids, "embedding": lists, **columns}), path)
    elif path.suffix == ".jsonl":
        table = {"id": ids, "embedding": [list(map(float, row)) for row in values], **columns}
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".h5":
        import h5py

        with h5py.File(path, "w") as file:
            file["embeddings"] = values
            file["id"] = ids
    else:
        widths = np.full((len(values), 1), values.shape[1], "<i4").view("<f4")
        np.hstack([widths, values]).tofile(path)
