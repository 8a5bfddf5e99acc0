"""Tables of ``experiment channels``."""

from collections.abc import Sequence
from dataclasses import replace

from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.stats.effects import Effect
from channelhash.lab.experiments.tables.effects import all_option_effects, effects_tables
from channelhash.lab.experiments.tables.rendering import Cell, Table
from channelhash.lab.experiments.tuning import Weights, best_trials, validation_score, weights_of

#: The method of `channels` that the others are tested against.
OWN = "RSCH, tuned"


def own_effects(results: Sequence[Result], score: str = "map_tie_aware") -> list[Effect]:
    """Return `OWN` minus each other method, paired by seed, of every task and code length."""
    effects = []
    for base in dict.fromkeys(result.method for result in results if result.method != OWN):
        pair = [result for result in results if result.method in (OWN, base)]
        effects += [replace(effect, name=f"{OWN} − {base}") for effect in all_option_effects(pair, base, score)]
    return effects


def own_effects_tables(results: Sequence[Result]) -> list[Table]:
    """Tabulate `own_effects` on tie-aware mAP and on graded NDCG."""
    tables = effects_tables(own_effects(results))
    for table in effects_tables(own_effects(results, "ndcg_graded"), score="graded NDCG"):
        tables.append(replace(table, name=f"ndcg-graded-{table.name}"))
    return tables


def trials_table(trials: Sequence[Result]) -> Table:
    """Tabulate what each trial of the weights scored on validation; the chosen ones are bold."""
    columns = sorted({weights_of(result).per_bit for result in trials})
    best = best_trials(trials)
    rows = []
    for method in dict.fromkeys(result.method for result in trials):
        by_weights = {weights_of(result): result for result in trials if result.method == method}
        for kappa_q in dict.fromkeys(weights.kappa_q for weights in by_weights):
            runs = [by_weights[Weights(kappa_q, per_bit)] for per_bit in columns]
            cells = [
                Cell(
                    f"{100 * validation_score(run):.2f}" if run.status == "finished" else run.status,
                    run is best[method],
                )
                for run in runs
            ]
            rows.append((Cell(method), Cell(f"{kappa_q:g}"), *cells))
    return Table(
        "trials",
        "Weights beside the channel on validation",
        ("Method", "κ_q", *(f"AP {per_bit:g} k" for per_bit in columns)),
        tuple(rows),
        "Mean mAP of image → text and text → image on validation after the last epoch, in percent; 32 bits, seed 0, "
        "the base learning rate. Bold: the weights that the method is compared at, at every code length: κ_q of the "
        "quantisation error, and of the direct AP term times the code length k.",
    )
