"""``channelhash compress``."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

import typer

from channelhash.cli import shared
from channelhash.errors import InputError, argument

if TYPE_CHECKING:
    from channelhash.compression.compressor import Method
    from channelhash.compression.report import Report
    from channelhash.compression.task import Task
    from channelhash.compression.trials import Plan
    from channelhash.data.vectors import Vectors


def _percentage(text: str) -> float:
    """Read a percentage, with or without its sign."""
    try:
        value = float(str(text).removesuffix("%"))
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise InputError(f"{argument('quality')} {text}: is no percentage above 0 and up to 100")
    return value


def _method(name: str) -> "Method":
    """Read how codes are fitted."""
    from channelhash.compression.compressor import Method
    from channelhash.utils.typed_settings import unknown

    methods = get_args(Method)
    if name not in methods:
        raise InputError(unknown(f"{argument('method')} {name!r}", name, [*methods]))
    return cast("Method", name)


def compress(
    vectors: Path = typer.Argument(
        ..., help="Vectors: .npy, .npz, .parquet, .jsonl, .h5, .mat or .fvecs, a row an item."
    ),
    questions: Path | None = typer.Option(
        None, help="Vectors of questions; by default a tenth of the vectors is held out."
    ),
    qrels: Path | None = typer.Option(
        None, help="Judgements: question, document and perhaps a grade a line."
    ),
    pairs: Path | None = typer.Option(
        None,
        help="Question, document and perhaps a weight a line, such as clicks: questions learn.",
    ),
    array: shared.Array = None,
    ids: shared.Ids = None,
    question_ids: Path | None = typer.Option(None, help="Likewise of the questions."),
    similarity: Literal["cosine", "inner", "euclidean"] = typer.Option(
        "cosine", help="How the encoder means its vectors to be compared."
    ),
    bits: list[int] = typer.Option(
        [], min=1, help="Code length; 64, 128 and 256 by default. May be repeated."
    ),
    method: list[str] = typer.Option(
        ["itq"],
        help="How codes are fitted: itq, or learned by the vectors' own neighbours. May be "
        "repeated.",
    ),
    quality: float = typer.Option(
        "95",
        parser=_percentage,
        metavar="PERCENT",
        help="Wanted quality, in percent of what the floats are worth.",
    ),
    first: int = typer.Option(500, min=1, help="Candidates that the second stage orders."),
    centred: bool | None = typer.Option(None, help="Second stages keep vectors less their mean."),
    markdown: Path | None = typer.Option(None, help="File for the table as Markdown."),
    plot: Path | None = typer.Option(
        None, help="File for a plot of quality over bytes: .png, .svg or .pdf."
    ),
    out: str | None = typer.Option(
        None, help="Folder of a new store, of all vectors in the code that is named."
    ),
    seed: int = typer.Option(0, help="Seed of samples, rotations and drawn questions."),
    skip_bad: shared.SkipBad = False,
    as_json: shared.AsJson = False,
) -> None:
    """Measure short codes of vectors: bytes, neighbours found, judged quality, time.

    Every byte that a search reads counts. The smallest code is named that is not significantly
    worse than wanted, beside signs and int8.

    Example: channelhash compress vectors.npy --questions questions.npy --qrels qrels.tsv
    """
    from channelhash.compression import report as reports
    from channelhash.compression.proof import prove
    from channelhash.compression.trials import Plan
    from channelhash.data.vectors import load_vectors
    from channelhash.utils.files import write_text

    methods = [_method(name) for name in method]
    if plot is not None:
        reports.check_plot(plot)
    if out is not None:
        _check_out(out)
    database = load_vectors(vectors, array, ids, skip_bad)
    task = _make_task(database, (questions, question_ids), (qrels, pairs), array, skip_bad, seed)
    plan = Plan(similarity, bits, first=first, seed=seed, centred=centred, codes=methods)
    with shared.progress_bars() as progress:
        proof = prove(task, plan, progress)
    for note in proof.notes:
        shared.say(note)
    report = reports.Report(task, proof, quality / 100, seed)
    if markdown is not None:
        write_text(markdown, report.markdown())
    if plot is not None:
        reports.write_plot(report, plot)
    shared.print_either(report.as_dict(), as_json, _print_report, report)
    if out is not None:
        _write_store(out, database, vectors, report, plan)


def _check_out(out: str) -> None:
    from channelhash.indexing.stores import check_free
    from channelhash.search import Address

    check_free(Address.parse(out), keeps_model=True)


def _write_store(out: str, database: "Vectors", path: Path, report: "Report", plan: "Plan") -> None:
    """Fit the code that was chosen to all vectors, and make a store of them."""
    from channelhash.compression.compressor import Compressor
    from channelhash.compression.models import to_model
    from channelhash.indexing.stores import create_store
    from channelhash.indexing.vectors import source_of
    from channelhash.search import Address

    chosen = report.chosen
    if chosen is None or chosen.n_bits is None:
        raise InputError(
            f"{out}: no code keeps enough, so no store is made; give {argument('quality')} less"
        )
    compressor = Compressor.fit(
        database,
        chosen.n_bits,
        chosen.second,
        plan.similarity,
        chosen.method or "itq",
        plan.seed,
        centred=report.proof.is_centred and chosen.second is not None,
    )
    lessons = report.task.lessons
    if lessons is not None:
        compressor = compressor.with_questions(
            lessons.questions, database, lessons.pairs, plan.seed
        )
    model = to_model(compressor)
    with shared.progress_bars(f"{out} keeps the items written so far") as progress:
        done = create_store(
            Address.parse(out),
            model,
            source_of(database, path),
            progress,
            chosen.second is not None,
        )
    shared.say(f"{done.items:,} items in {out}, {compressor.n_bytes:,} bytes of code each")


def _make_task(
    vectors: "Vectors",
    questions: tuple[Path | None, Path | None],
    judged: tuple[Path | None, Path | None],
    array: str | None,
    skip_bad: bool,
    seed: int,
) -> "Task":
    """Read questions with the file of their ids, judgements, and pairs to learn from."""
    from channelhash.compression.task import make_task, read_judgements
    from channelhash.data.vectors import load_vectors

    asked = None
    if questions[0] is not None:
        asked = load_vectors(questions[0], array, questions[1], skip_bad)
    shared.say_left_out([*vectors.problems, *(asked.problems if asked else ())])
    judgements, pairs = (None if path is None else read_judgements(path) for path in judged)
    return make_task(vectors, asked, judgements, seed, pairs)


def _print_report(report: "Report") -> None:
    header, cells = report.table()
    shared.print_table(report.title(), header, cells, numeric=True)
    for line in report.lines():
        typer.echo(line)
