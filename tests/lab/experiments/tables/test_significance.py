"""Tables of tests and of wins say what was computed."""

from channelhash.lab.experiments.comparisons import Comparison, SeedTest, significance_table, wins_table
from channelhash.metrics.significance import PairedTest
from lab.experiments.made_results import made_result

SCH = {"name": "sch", "kappa_q": 0.0}


def test_differences_are_in_points_and_small_p_values_bold():
    comparisons = [
        Comparison(
            "DSCH", "SCH", 32, "image->text",
            PairedTest(0.0123, 0.0001, 1990), SeedTest(0.0123, -0.001, 0.025, 0.06, 3), 0.0004, 0.06,
        ),
        Comparison("DSCH", "SCH", 64, "image->text", None, None),
        Comparison("DSCH", "SCH", 32, "text->image", PairedTest(-0.02, 0.01, 1990), None, 0.05),
    ]  # fmt: skip
    table = significance_table(comparisons)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["image → text", "DSCH against SCH, k = 32", "+1.23", "< 0.001", "1990", "−0.10 … +2.50", "0.060", "3"],
        ["image → text", "DSCH against SCH, k = 64", "no common seed", "–", "–", "–", "–", "–"],
        ["text → image", "DSCH against SCH, k = 32", "−2.00", "0.050", "1990", "–", "–", "–"],
    ]
    assert [[cell.text for cell in row if cell.bold] for row in table.rows] == [["< 0.001"], [], ["0.050"]]


def test_wins_are_counted_over_complete_cells():
    results = [
        made_result(method, seed, {"image->text": share, "text->image": 0.5}, k, loss=loss)
        for method, loss, shares in (("SCH", SCH, {16: 0.6, 32: 0.4}), ("DSCH", None, {16: 0.5, 32: 0.5, 64: 0.5}))
        for k, share in shares.items()
        for seed in range(2)
    ]
    # At 64 bits DSCH stands alone; at 128 a run failed.
    results += [
        made_result("SCH", 0, 0.9, 128, loss=SCH),
        made_result("DSCH", 0, 0.1, 128),
        made_result("DSCH", 1, n_bits=128, status="failed"),
    ]
    table = wins_table(results)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["SCH", "1", "2", "1", "4"],
        ["DSCH", "1", "2", "1", "4"],
    ]
    assert "left out because a run there has no figure: 2." in table.caption
    assert "left out" not in wins_table(results[:10]).caption
