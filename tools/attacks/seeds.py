"""Small valid files of every kind that channelhash reads, made with its own commands."""

import csv
import json
import random
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from command_worker import Worker
from PIL import Image

WORDS = ("red", "green", "blue")
N = 24


def make_seeds(root: Path, worker: Worker) -> Path:
    """Write a folder of valid files for each kind of input below ``root``; returns ``root``."""
    if (root / "done").exists():
        return root
    pictures = _pictures(root / "pictures")
    _models(root, worker)
    _tables(root / "tables", pictures)
    _arrays(root / "arrays")
    _trees(root)
    _shards(root / "shards", pictures)
    _words(root / "words")
    _onnx(root / "onnx" / "net.onnx")
    for kind in ("zip", "gztar"):
        shutil.make_archive(str(root / "archives" / "a"), kind, root / "nuswide")
    _values(root / "values")
    (root / "store" / "values").symlink_to(root / "values")
    run(worker, root, "encode", "run/run", "--data", "shards", "--out", "job/codes")
    (root / "done").touch()
    return root


def run(worker: Worker, folder: Path, *arguments: object) -> None:
    """Run a command that has to succeed."""
    done = worker.run([str(argument) for argument in arguments], folder, 300)
    if done["outcome"] != "ok":
        raise RuntimeError(f"{arguments}: {done}")


def _pictures(folder: Path) -> Path:
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = []
    for i in range(N):
        pixels = rng.integers(0, 120, (20, 26, 3), dtype=np.uint8)
        pixels[..., i % 3] += 120
        Image.fromarray(pixels).save(folder / "images" / f"{i}.png")
        rows.append(
            {"id": f"i{i:02d}", "image": f"images/{i}.png", "text": f"a {WORDS[i % 3]} one", "labels": WORDS[i % 3]}
        )
    _write_csv(folder / "items.csv", rows)
    return folder


def _write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def _models(root: Path, worker: Worker) -> None:
    """Make runs of pictures and of features, a store, a grid, codes, shards of codes, a FAISS file."""
    _arrays(root / "features")
    train = {
        "epochs": 1,
        "batch_size": 4,
        "learning_rate": 1e-3,
        "validate_every": 1,
        "checkpoint_every": 1,
        "workers": 0,
    }
    split = {"queries": 6, "train": 8, "validation_queries": 4}
    small = {
        "data": {"kind": "table", "path": str(root / "pictures" / "items.csv"), **split},
        "model": {"name": "small", "n_bits": 8, "image_size": 16, "width": 8},
        "loss": {"name": "dsch"},
        "train": train,
    }
    features = {
        "data": {"kind": "features", "path": "features.npz", **split},
        "model": {"name": "features", "n_bits": 8, "hidden": [8]},
        "loss": {"name": "dsch"},
        "train": train,
        "evaluate": {"cutoffs": [5]},
    }
    (root / "small.yaml").write_text(yaml.safe_dump(small))
    (root / "configs").mkdir()
    (root / "configs" / "config.yaml").write_text(yaml.safe_dump(features))
    (root / "configs" / "features.npz").write_bytes((root / "features" / "features.npz").read_bytes())
    run(worker, root, "train", "small.yaml", "--out", "run/run")
    run(worker, root, "evaluate", "run/run")
    run(worker, root / "configs", "train", "config.yaml", "--out", root / "plain" / "run")
    run(worker, root, "index", "create", "store/photos.store", "pictures", "--model", "run/run")
    run(worker, root, "encode", "run/run", "--data", "pictures/items.csv", "--out", "codes/codes.parquet")
    run(worker, root, "index", "export-faiss", "store/photos.store", "faiss/photos.faiss")
    losses = ("--losses", "dsch,sch", "--seeds", 1, "--bits", 8)
    run(
        worker,
        root / "configs",
        "experiment",
        "losses",
        "--config",
        "config.yaml",
        *losses,
        "--out",
        root / "grid/grid",
    )
    (root / "model").mkdir()
    for file in ("config.json", "model.safetensors"):
        (root / "model" / file).write_bytes((root / "run" / "run" / "model" / file).read_bytes())
    (root / "textmodel").mkdir()
    for file in ("config.json", "model.safetensors"):
        (root / "textmodel" / file).write_bytes((root / "plain" / "run" / "model" / file).read_bytes())


def _tables(folder: Path, pictures: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rows = [{"id": f"i{i}", "text": f"a {WORDS[i % 3]} one, é", "labels": f"{WORDS[i % 3]};x"} for i in range(N)]
    _write_csv(folder / "items.csv", rows)
    _write_csv(folder / "items.tsv", rows, "\t")
    (folder / "items.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), folder / "items.parquet")
    image = next((pictures / "images").iterdir()).read_bytes()
    listed = [{**row, "image": image, "labels": row["labels"].split(";")} for row in rows]
    (folder / "bulk").mkdir()
    pq.write_table(pa.Table.from_pylist(listed), folder / "bulk" / "items.parquet")
    vectors = [{"id": row["id"], "image": [1.0] * 6, "text": [0.5] * 5} for row in rows]
    (folder / "vectors").mkdir()
    pq.write_table(pa.Table.from_pylist(vectors), folder / "vectors" / "items.parquet")


def _arrays(folder: Path) -> None:
    import h5py
    from scipy.io import savemat
    from scipy.sparse import csc_matrix

    folder.mkdir()
    rng = np.random.default_rng(0)
    labels = np.eye(3)[np.arange(N) % 3]
    arrays = {"image": rng.normal(size=(N, 6)), "text": rng.normal(size=(N, 5)), "labels": labels}
    named = {"id": np.array([f"i{i}" for i in range(N)]), "label_names": np.array(WORDS)}
    np.savez(folder / "features.npz", **{k: v.astype(np.float32) for k, v in arrays.items()}, **named)
    savemat(folder / "features.mat", {"IAll": arrays["image"], "YAll": csc_matrix(arrays["text"]), "LAll": labels})
    with h5py.File(folder / "features.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
        file["label_names"] = [word.encode() for word in WORDS]
    with h5py.File(folder / "seven.mat", "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = values.T
        sparse = csc_matrix(labels)
        group = file.create_group("LAll")
        group["data"], group["ir"], group["jc"] = sparse.data, sparse.indices, sparse.indptr
        group.attrs["MATLAB_sparse"] = N
    codes = np.sign(rng.normal(size=(N, 8)))
    both = {"B_q": codes[:9], "B_r": codes[9:], "L_q": labels[:9], "L_r": labels[9:]}
    savemat(folder / "codes.mat", both, do_compression=True)
    np.savez(folder / "codes.npz", **both)


def _trees(root: Path) -> None:
    """COCO, NUS-WIDE and MIRFLICKR-25k in small."""
    coco = root / "coco"
    (coco / "images").mkdir(parents=True)
    pixel = Image.new("RGB", (9, 7))
    ids = range(1, 7)
    for i in ids:
        pixel.save(coco / f"{i}.jpg")
    images = [{"id": i, "file_name": f"{i}.jpg"} for i in ids]
    marks = [{"image_id": i, "category_id": i % 2} for i in ids]
    kinds = [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]
    (coco / "instances.json").write_text(json.dumps({"images": images, "annotations": marks, "categories": kinds}))
    texts = [{"image_id": i, "caption": "a small one"} for i in ids]
    (coco / "captions.json").write_text(json.dumps({"annotations": texts}))

    wide = root / "nuswide"
    for part in ("ImageList", "Groundtruth/AllLabels", "NUS_WID_Tags"):
        (wide / part).mkdir(parents=True)
    (wide / "ImageList/Imagelist.txt").write_text("\r\n".join(f"sky\\000{i}_{i}.jpg" for i in ids))
    for name in ("sky", "dog"):
        (wide / f"Groundtruth/AllLabels/Labels_{name}.txt").write_text("".join(f"{i % 2}\n" for i in ids))
    (wide / "NUS_WID_Tags/All_Tags.txt").write_text("".join(f"{i} café sky \r\n" for i in ids))

    flickr = root / "mirflickr"
    (flickr / "mirflickr/meta/tags").mkdir(parents=True)
    (flickr / "annotations").mkdir()
    for i in ids:
        pixel.save(flickr / f"mirflickr/im{i}.jpg")
        (flickr / f"mirflickr/meta/tags/tags{i}.txt").write_text("sea\nblue\n")
    for name in ("sea", "sky", "sea_r1"):
        (flickr / f"annotations/{name}.txt").write_text("1\n2\n3\n4\n")


def _shards(folder: Path, pictures: Path) -> None:
    folder.mkdir()
    with tarfile.open(folder / "0.tar", "w") as tar:
        for i in range(4):
            for ending in (".png", ".txt", ".json"):
                part = folder / f"{i}{ending}"
                fields = {"labels": [WORDS[i % 3]], "caption": "a red one", "size": {"w": 26}}
                content = (
                    (pictures / "images" / f"{i}.png").read_bytes() if ending == ".png" else json.dumps(fields).encode()
                )
                part.write_bytes(b"a red one" if ending == ".txt" else content)
                if ending != ".txt" or i % 2:
                    tar.add(part, part.name)
                part.unlink()


def _words(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(12, 5)).astype(np.float32)
    names = [f"word{i}" for i in range(12)]
    lines = [f"{name} {' '.join(f'{x:.4f}' for x in vector)}" for name, vector in zip(names, vectors, strict=True)]
    (folder / "words.vec").write_text("12 5\n" + "\n".join(lines) + "\n")
    (folder / "glove.txt").write_text("\n".join(lines) + "\n")
    binary = b"".join(n.encode() + b" " + v.tobytes() + b"\n" for n, v in zip(names, vectors, strict=True))
    (folder / "words.bin").write_bytes(b"12 5\n" + binary)
    (folder / "texts.txt").write_text("red sea #beach\ngoldengate 2007\n\u00e9t\u00e9 sun\n")
    image = Image.new("RGB", (12, 9), "red")
    (folder.parent / "photos").mkdir()
    for ending in ("png", "jpg", "webp", "gif", "bmp", "tiff"):
        image.save(folder.parent / "photos" / f"a.{ending}")


def _onnx(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    path.parent.mkdir()
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])
    nodes = [helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)]
    graph = helper.make_graph(nodes, "g", [given], [result], [axes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def _values(folder: Path) -> None:
    """Strings of a command line, one a line: `files` takes a line, and puts it in the place of a value."""
    folder.mkdir()
    for name, lines in VALUES.items():
        (folder / f"{name}.value").write_text("\n".join(lines))


VALUES = {
    "set": [
        "train.epochs=3",
        "data.queries=4",
        "loss.tau=1.5",
        "model.hidden=[4, 8]",
        "loss.name=sch",
        "evaluate.cutoffs=[1,5]",
        "train.learning_rate=1e-4",
        "data.only_labels=[red]",
        "model.n_bits=16",
        "train.device=cpu",
        "data.label_names=null",
        "model.extractors={text: 'open_clip:x'}",
    ],
    "where": [
        "label = 'red'",
        "label = 'red' AND year > 2019",
        "id LIKE 'i%' OR NOT (score <= 1.5)",
        "label IN ('a', 'b')",
        "year BETWEEN 2000 AND 2020",
        "title IS NOT NULL",
        "text = 'it''s'",
        "has_label('red')",
    ],
    "number": ["1", "0", "-1", "1e9", "1e308", "nan", "inf", "-inf", "1e-308", "9" * 30, "100000000", "0.5", "64", "7"],
    "text": ["a red one", "#beach goldengate", "word0 d80", "\u00e9t\u00e9 漢字"],
    "name": ["i00", "image->text", "auto", "cpu", "8,16", "images/0.png"],
}


def pick_line(text: str, rng: random.Random) -> str:
    """Return one line of a file of values."""
    return rng.choice(text.split("\n"))
