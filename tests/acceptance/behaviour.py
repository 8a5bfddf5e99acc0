"""What a user sees of this version, by public commands and names alone; each function returns what
JSON can hold.

``python -m acceptance.behaviour`` (in ``tests``) records it anew in ``recorded/``. A changed record
is a decision: say in the commit what changed for users and why.
"""

import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import scipy.io
import torch
from PIL import Image
from safetensors.numpy import load_file

import channelhash as ch
from serve.served import started
from small_runs import feature_config, grid_base, run_command, write_features

RECORDED = Path(__file__).parent / "recorded"
PHOTOGRAPHS = Path(__file__).parents[2] / "examples" / "photographs"
SENTENCES = (
    "a bird sitting on a branch",
    "a cat looking at the camera",
    "two dogs at a window",
    "a cup of coffee on a table",
    "an old castle by a river",
    "a tower at night",
    "windmills beside a canal",
    "people playing music",
    "a baseball player",
    "fish in the sea",
    "a big cat in the snow",
    "a horse on a meadow",
    "flowers in a garden",
    "mountains in autumn",
    "a rocket taking off",
    "tall buildings of a city",
    "fruit in a bowl",
    "a bear",
    "quarterly tax report of a bank",
    "xqzzt blorf wumpus",
)
FILTERS = (
    "n >= 3",
    "n BETWEEN 2 AND 5 AND NOT name LIKE 'a%'",
    "name LIKE 'A%'",
    "name LIKE '%e%' OR n = 1",
    "label = 'cat'",
    "label IN ('dog', 'sea')",
    "price < 1.5",
    "price IS NULL",
    "name != 'beta'",
    "NOT (n > 2)",
    "ready = TRUE",
    "label LIKE 'c%' AND price IS NOT NULL",
)


def command(*arguments: object) -> Any:
    """Run a command with ``--json`` in this process; return its object, or its status and last
    line.
    """
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run_command(*arguments, "--json")
    if status:
        return {"status": status, "line": err.getvalue().strip().splitlines()[-1]}
    return json.loads(out.getvalue())


def labels_of(n: int, seed: int) -> np.ndarray:
    labels = np.random.default_rng(seed).random((n, 6)) < 0.3
    labels[~labels.any(axis=1), 0] = True
    return labels


def losses(folder: Path) -> dict[str, Any]:
    """Loss -> value and size of the gradients, by default and with the recommended weights."""
    labels = torch.from_numpy(labels_of(12, 1))
    values = {}
    cases = [(name, "defaults", {}) for name in ch.losses.LOSSES]
    cases += [(name, "recommended", {"recommended": True}) for name in ch.losses.RECOMMENDED]
    for name, weights, settings in cases:
        torch.manual_seed(0)
        loss = ch.losses.make_loss(name, 16, 6, **settings)
        image, text = torch.from_numpy(np.random.default_rng(2).normal(size=(2, 12, 16)))
        outputs = {"image": image.requires_grad_(), "text": text.requires_grad_()}
        value = loss.double()(outputs, labels)
        value.backward()
        sizes = {modality: float(rows.grad.abs().sum()) for modality, rows in outputs.items()}
        values[f"{name} {weights}"] = {"value": value.item(), "gradients": sizes}
    return values


def metrics(folder: Path) -> dict[str, Any]:
    """Each score of drawn codes with many ties, for one database and for two shards of it."""
    random = np.random.default_rng(3)
    query, database = (ch.codes.pack(random.random((n, 12)) < 0.5) for n in (9, 80))
    query_labels, database_labels = labels_of(9, 4), labels_of(80, 5)
    histogram = ch.metrics.hamming_histogram(
        query, database, query_labels, database_labels, n_bits=12
    )
    scores: dict[str, Any] = {
        "total": histogram.total.sum(axis=0),
        "relevant": histogram.relevant.sum(axis=0),
        "average_precision": histogram.average_precision(),
        "mean_average_precision": histogram.mean_average_precision(),
        "map_bounds": histogram.map_bounds(),
        "map_at": [histogram.map_at(z) for z in (1, 10, 50)],
        "precision_at": [histogram.precision_at(z) for z in (1, 10, 50)],
        "ndcg": histogram.ndcg(),
        "roc_auc": [histogram.roc_auc(average=average) for average in ("micro", "macro")],
        "precision_recall_curve": histogram.precision_recall_curve(),
        "within_radius": histogram.within_radius(2),
        "chance_level": histogram.chance_level(),
    }
    sets = [
        ch.CodeSet(ids, {"image": codes, "text": codes[::-1].copy()}, labels, n_bits=12)
        for ids, codes, labels in (
            ([f"q{row}" for row in range(9)], query, query_labels),
            ([f"d{row}" for row in range(80)], database, database_labels),
        )
    ]
    scores["tasks"] = {
        task: {
            key: report[key]
            for key in ("map_tie_aware", "map_lower", "map_upper", "ndcg", "chance")
        }
        for task, report in ch.metrics.evaluate(*sets).items()
    }
    scores["recall_at_k"] = ch.metrics.recall_at_k(*sets, pairs=7 * np.arange(9), k=(1, 5, 10))
    return plain(scores)


def channels(folder: Path) -> dict[str, Any]:
    """Bounds of both channels over label similarities, and relaxed Hamming distances."""
    similarity = ch.channels.label_similarity(torch.from_numpy(labels_of(6, 6)))
    a, b = (torch.from_numpy(np.random.default_rng(seed).normal(size=(4, 16))) for seed in (7, 8))
    return plain(
        {
            "similarity": similarity,
            "dsch": ch.channels.dsch_bounds(similarity, 16),
            "sch": ch.channels.sch_bounds(similarity, 16),
            "relaxed": ch.channels.relaxed_hamming(a, b),
        }
    )


def foreign_codes(folder: Path) -> dict[str, Any]:
    """Evaluations of codes as two other toolboxes write them."""
    random = np.random.default_rng(9)
    arrays = {
        name: np.where(random.random((n, 16)) < 0.5, -1.0, 1.0)
        for name, n in (("B_q", 12), ("B_r", 60))
    }
    arrays |= {"L_q": labels_of(12, 10).astype(float), "L_r": labels_of(60, 11).astype(float)}
    np.savez(folder / "codes.npz", **arrays)
    scipy.io.savemat(
        folder / "codes.mat", {name: (rows > 0).astype(np.uint8) for name, rows in arrays.items()}
    )
    return {
        file: command("evaluate", "--codes", folder / file)["tasks"]
        for file in ("codes.npz", "codes.mat")
    }


def drawn_store(address: object) -> ch.Store:
    """Write ten items with metadata, labels and captions into a new store."""
    store = ch.open_store(address, n_bits=16)
    random = np.random.default_rng(12)
    codes = {
        modality: random.integers(0, 256, (10, 2)).astype(np.uint8)
        for modality in ("image", "text")
    }
    names = ["alpha", "Alpha", "beta", "gamma", "delta", "apple", "Eta", "theta", "äther", "zeta"]
    labels = [
        ["cat"],
        ["dog"],
        ["cat", "sea"],
        [],
        ["sea"],
        ["dog", "cat"],
        ["bus"],
        ["cat"],
        ["sea"],
        [],
    ]
    metadata: list[dict[str, Any]] = [
        {
            "name": name,
            "n": n,
            "ready": n % 2 == 0,
            "labels": labels[n],
            "text": f"a {name} and item {n}",
        }
        | ({} if n == 4 else {"price": n / 4})
        for n, name in enumerate(names)
    ]
    store.add([f"item{n}" for n in range(10)], codes["image"], modality="image", metadata=metadata)
    store.upsert([f"item{n}" for n in range(10)], codes["text"], modality="text")
    return store


def stores(folder: Path) -> dict[str, Any]:
    """Answers of a store in a folder, which the other kinds have to equal."""
    return store_answers(folder / "store")


def store_answers(address: object) -> dict[str, Any]:
    """Answers of a small store: filters, neighbours, radius, and what changes with an upsert and a
    delete.
    """
    with drawn_store(address) as store:
        zero = np.zeros((1, 2), np.uint8)
        answers: dict[str, Any] = {where: sorted(store.ids(where)) for where in FILTERS}
        for modality in ("image", "text"):
            hits = store.search(zero, k=4, modality=modality)
            answers[f"nearest {modality}"] = [hits.ids, hits.distances]
        hits = store.search(zero, k=3, modality="image", where="n >= 3")
        answers["nearest of a filter"] = [hits.ids, hits.distances]
        hits = store.search_radius(zero, 7, modality="image")
        answers["within 7"] = [hits.ids, hits.distances]
        store.upsert(["item0"], zero, modality="image", metadata=[{"name": "omega", "price": None}])
        store.delete(["item1", "item2"])
        hits = store.search(zero, k=2, modality="image")
        answers["after changes"] = [
            hits.ids,
            hits.distances,
            len(store),
            sorted(store.ids("price IS NULL")),
        ]
    return plain(answers)


def exchanges(folder: Path) -> dict[str, Any]:
    """Fifteen HTTP exchanges with a server of the small store: status and body."""
    drawn_store(folder / "store").close()
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/health", None),
        ("GET", "/info", None),
        ("GET", "/items?limit=3", None),
        ("GET", "/items/item3", None),
        ("GET", "/items/none", None),
        ("GET", "/labels", None),
        ("GET", "/duplicates", None),
        ("POST", "/search", {"id": "item3", "k": 3}),
        ("POST", "/search", {"code": "0000", "k": 2, "where": "n >= 5"}),
        ("POST", "/search", {"text": "gamma", "by": "words"}),
        ("POST", "/search", {"id": "item3", "code": "0000"}),
        ("POST", "/search", {"id": "item3", "where": "n >"}),
        ("POST", "/items", {"items": []}),
        ("DELETE", "/items/item3", None),
        ("GET", "/nowhere", None),
    ]
    answers = {}
    with started(folder / "store") as (_, address):
        for number, (method, path, body) in enumerate(asked):
            answer = httpx.request(method, address.strip("/") + path, json=body, timeout=60)
            content = {"status": answer.status_code, "body": steady(answer.json())}
            answers[f"{number} {method} {path} {json.dumps(body)}"] = content
    return answers


def steady(value: Any) -> Any:
    """Leave out what differs between two runs: times, versions and folders."""
    if isinstance(value, dict):
        volatile = (
            "took",
            "seconds",
            "version",
            "folder",
            "store",
            "started",
            "now",
            "request",
            "loading",
        )
        return {key: steady(inner) for key, inner in value.items() if not key.startswith(volatile)}
    if isinstance(value, list):
        return [steady(inner) for inner in value]
    return value


def trainings(folder: Path) -> dict[str, Any]:
    """Three short trainings: hash and size of the weights, last loss and scores."""
    features = write_features(folder / "features.npz")
    results = {}
    for name, loss in (("dsch", "dsch"), ("hyp2", "hyp2"), ("pairs", "contrastive")):
        config = feature_config(folder / f"{name}.json", features, loss, epochs=2)
        trained = command("train", config, "--out", folder / name)
        weights = load_file(folder / name / "model" / "model.safetensors")
        everything = hashlib.sha256(b"".join(weights[key].tobytes() for key in sorted(weights)))
        sizes = {key: float(np.abs(array).sum()) for key, array in sorted(weights.items())}
        results[name] = {
            "machine": machine(),
            "sha256": everything.hexdigest(),
            "sizes": sizes,
            "loss": trained["loss"],
            "scores": command("evaluate", folder / name)["tasks"],
        }
    return plain(results)


def machine() -> str:
    """Name what sums depend on in their last bits."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {capability}, {torch.get_num_threads()} threads"


def grid(folder: Path) -> dict[str, Any]:
    """The paper's comparison of losses on small features: the scores of each run."""
    base = grid_base(folder)
    done = command(
        "experiment",
        "losses",
        "--config",
        base,
        "--bits",
        "8",
        "--bits",
        "16",
        "--seeds",
        "1",
        "--out",
        folder / "grid",
    )
    return {
        f"{run['loss']} {run['n_bits']}": {
            task: scores["map_tie_aware"] for task, scores in run["tasks"].items()
        }
        for run in done["runs"]
    }


def photographs(folder: Path) -> dict[str, Any]:
    """Twenty sentences on the photographs of the examples, by each way of searching; and
    near-duplicates of copies.
    """
    photos = folder / "photographs"
    shutil.copytree(PHOTOGRAPHS, photos, ignore=shutil.ignore_patterns(".channelhash", "*.md"))
    captions = {
        "owl.jpg": "an owl in a tree",
        "pig.jpg": "a pig on a farm",
        "sunset.jpg": "the sun over the sea",
    }
    lines = [f"{name},{text}" for name, text in captions.items()]
    (folder / "captions.csv").write_text("\n".join(["image,text", *lines]), encoding="utf-8")
    answers: dict[str, Any] = {}
    for sentence in SENTENCES:
        for by in ("all", "image", "text", "words"):
            asked = (
                "search",
                photos,
                sentence,
                "--captions",
                folder / "captions.csv",
                "--by",
                by,
                "-k",
                "5",
            )
            found = command(*asked)
            if "results" in found:
                hits = [
                    {key: hit.get(key) for key in ("id", "distance", "match")}
                    for hit in found["results"]
                ]
                found = {"results": hits, "close": found.get("close")}
            answers[f"{by}: {sentence}"] = found
    for name in ("owl", "tiger-snow"):
        image = Image.open(photos / f"{name}.jpg")
        image.save(photos / f"{name}-q50.jpg", quality=50)
        image.resize((image.width // 2, image.height // 2)).save(
            photos / f"{name}-half.jpg", quality=90
        )
    answers["duplicates"] = command("duplicates", photos)
    answers["duplicates"].pop("photos")  # paths and dates are those of the copies made now
    return answers


def plain(value: Any) -> Any:
    """Return arrays and tensors as lists, NaN as None."""
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and np.isnan(value) else value


#: What is recorded -> the function that does it again, in a new folder.
QUICK = {one.__name__: one for one in (losses, metrics, channels, foreign_codes, exchanges)}
SLOW = {one.__name__: one for one in (trainings, grid, photographs, stores)}


def main() -> None:
    """Record what is named anew, or everything."""
    for name in sys.argv[1:] or [*QUICK, *SLOW]:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["CHANNELHASH_CACHE"] = f"{folder}/cache"
            result = (QUICK | SLOW)[name](Path(folder))
        text = json.dumps(result, indent=1, ensure_ascii=False, sort_keys=True)
        (RECORDED / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
