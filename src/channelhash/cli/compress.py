"""``channelhash compress``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from channelhash.cli import shared

if TYPE_CHECKING:
    import numpy as np

    from channelhash.compression.proof import Row, Task


def compress(
    vectors: Path = typer.Argument(
        ..., help="Vectors: .npy, .npz, .parquet, .jsonl, .h5 or .fvecs, a row an item."
    ),
    questions: Path | None = typer.Option(
        None, help="Vectors of questions; by default a tenth of the vectors is held out."
    ),
    qrels: Path | None = typer.Option(
        None, help="Judgements: question, document and perhaps a grade a line."
    ),
    array: str | None = typer.Option(None, help="The array or column, where there are several."),
    ids: Path | None = typer.Option(None, help="Text file of the vectors' ids, one a line."),
    question_ids: Path | None = typer.Option(None, help="Likewise of the questions."),
    similarity: Literal["cosine", "inner", "euclidean"] = typer.Option(
        "cosine", help="How the encoder means its vectors to be compared."
    ),
    bits: list[int] = typer.Option([], help="Code lengths to try; 64, 128 and 256."),
    keep: float = typer.Option(
        95.0, min=1, max=100, help="Wanted quality, in percent of what the floats are worth."
    ),
    first: int = typer.Option(500, min=1, help="Candidates that the second stage orders."),
    seed: int = typer.Option(0, help="Seed of samples, rotations and held-out questions."),
    skip_bad: shared.SkipBad = False,
    as_json: shared.AsJson = False,
) -> None:
    """Measure short codes of vectors: bytes, neighbours found, judged quality, time.

    Every byte that a search reads counts. The smallest code is named that is not significantly
    worse than wanted.

    Example: channelhash compress vectors.npy --questions questions.npy --qrels qrels.tsv
    """
    from channelhash.compression import proof
    from channelhash.data.vectors import load_vectors

    database = load_vectors(vectors, array, ids, skip_bad)
    asked = None
    if questions is not None:
        asked = load_vectors(questions, array, question_ids, skip_bad)
    shared.say_left_out([*database.problems, *(asked.problems if asked else ())])
    judged = None if qrels is None else proof.read_judgements(qrels)
    task = proof.make_task(database, asked, judged, seed)
    with shared.progress_bars() as progress:
        rows = list(proof.prove(task, similarity, bits, first=first, seed=seed, progress=progress))
    chosen = proof.choose(rows, keep / 100)
    answer = {
        "vectors": len(task.vectors),
        "width": task.vectors.width,
        "questions": len(task.questions),
        "held_out": task.held_out,
        "codes": [row.as_dict() for row in rows],
        "keep": keep,
        "chosen": None if chosen is None else chosen.name,
    }
    shared.print_either(answer, as_json, _print_rows, task, rows, chosen, keep)


def _print_rows(task: "Task", rows: "Sequence[Row]", chosen: "Row | None", keep: float) -> None:
    is_judged = bool(task.judgements)
    header = ["", "bytes", "R@10, %", *(["nDCG@10, %", "R@100, %"] if is_judged else [])]
    header += ["ms a question", "s to build"]
    cells = []
    for row in rows:
        scores = [row.scores.neighbours]
        if is_judged:
            scores += [row.scores.ndcg, row.scores.recall]
        measured = [_interval(values) for values in scores]
        times = [f"{row.question_ms:.2f}", f"{row.build_seconds:.1f}"]
        cells.append([row.name, f"{row.n_bytes:,}", *measured, *times])
    kind = "held out of them" if task.held_out else "given"
    shared.print_table(
        f"{len(task.vectors):,} vectors of {task.vectors.width} numbers, "
        f"{len(task.questions):,} questions ({kind}); R@10: of the ten nearest in floats",
        header,
        cells,
        numeric=True,
    )
    if chosen is None:
        typer.echo(f"No code keeps {keep:g} %; give more bits")
    else:
        typer.echo(f"Smallest code that is not significantly worse than {keep:g} %: {chosen.name}")


def _interval(scores: "np.ndarray") -> str:
    from channelhash.compression.proof import interval_of

    mean, lower, upper = interval_of(scores)
    return f"{mean:.1f} ({lower:.1f}–{upper:.1f})"
