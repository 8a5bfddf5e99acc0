"""Health of a run's codes (`metrics.code_health`) as tables and a drawing."""

from collections.abc import Mapping

import numpy as np

from channelhash.codes.code_set import CodeSet
from channelhash.lab.report.chart import line_chart
from channelhash.lab.report.page import Block, Charts, Table, Text
from channelhash.lab.report.scores import print_score
from channelhash.metrics.code_health import BitHealth, Bounds, bit_health, channel_health

# Kind of pair, as `metrics.code_health` names it -> in words.
_PAIR_KINDS = {
    "dissimilar": "no label shared (S = 0)",
    "partly_similar": "some labels shared (0 < S < 1)",
    "identical_labels": "same labels (S = 1)",
}


def health_blocks(query: CodeSet, database: CodeSet, bounds: Bounds | None) -> list[Block]:
    """Describe bits and buckets of the retrieval set, and pairs of queries, which are held out, against their channels.

    Args:
        query: codes of the queries.
        database: codes of the retrieval set; at least one.
        bounds: the channels of the run's loss, as in `metrics.code_report`; None without channels.
    """
    of_bits = {modality: bit_health(packed, database.n_bits) for modality, packed in database.codes.items()}
    blocks: list[Block] = [
        Text(f"Bits and buckets of the {len(database):,} items of the retrieval set; a good bit is 1 for half."),
        _bit_table(of_bits),
        Charts(
            [
                line_chart(
                    "Share of ones of each bit, %",
                    "bits, sorted",
                    {name: _sorted(health["ones"]) for name, health in of_bits.items()},
                )
            ]
        ),
    ]
    if bounds is None:
        blocks.append(Text("The run's loss has no channels, so pairs are not held against any."))
    elif query.labels is None:
        blocks.append(Text("These codes have no labels, which channels go by."))
    else:
        blocks += [
            Text(
                f"Pairs of the {len(query):,} queries, none of which was trained on, against the channel of the run's "
                "loss: the distances that it allows pairs of such label similarity S."
            ),
            _channel_table(query, bounds),
        ]
    return blocks


def _sorted(shares: list[float]) -> list[tuple[float, float]]:
    return [(number, 100 * share) for number, share in enumerate(sorted(shares), start=1)]


def _bit_table(of_bits: Mapping[str, BitHealth]) -> Table:
    health = list(of_bits.values())
    rows = [
        ("bits that are constant", *[print_score(h["constant"]) for h in health]),
        ("share of ones, smallest", *[print_score(min(h["ones"])) for h in health]),
        ("share of ones, largest", *[print_score(max(h["ones"])) for h in health]),
        ("entropy of a bit, mean (100 is balanced)", *[print_score(float(np.mean(h["entropy"]))) for h in health]),
        ("|correlation| of two bits, mean", *[print_score(h["correlation_mean"]) for h in health]),
        ("|correlation| of two bits, largest", *[print_score(h["correlation_max"]) for h in health]),
        ("distinct codes / items", *[print_score(h["distinct"]) for h in health]),
        ("items alone with their code", *[print_score(h["alone"]) for h in health]),
        ("items of the most frequent code", *[print_score(h["largest_bucket"]) for h in health]),
    ]
    return Table(["codes", *of_bits], rows, "Bits and buckets; shares in %")


def _channel_table(query: CodeSet, bounds: Bounds) -> Table:
    names = list(query.codes)
    rows = []
    for i, first in enumerate(names):
        for second in names[i:]:
            partner = None if first == second else query.codes[second]
            assert query.labels is not None
            kinds = channel_health(query.codes[first], partner, query.labels, query.n_bits, bounds)
            for kind, health in kinds.items():
                shares = [print_score(health["inside"]), print_score(health["below"]), print_score(health["above"])]
                rows.append((f"{first}–{second}, {_PAIR_KINDS[kind]}", print_score(health["pairs"]), *shares))
    return Table(["pairs of codes", "pairs", "inside, %", "nearer, %", "farther, %"], rows, "Pairs and their channels")
