"""The literal loss that ours is measured against has its value and gradient; rows say what was measured."""

import pytest
import torch

from channelhash.lab.benchmarks import loss
from channelhash.losses import DSCHLoss


@pytest.mark.parametrize("k", [16, 32])
def test_the_broadcast_form_has_the_value_and_gradient_of_the_loss(k):
    outputs, labels = loss.draw_batch(12, k)
    ours, literal = DSCHLoss(n_bits=k)(outputs, labels), loss.literal_dsch(outputs, labels, k)
    torch.testing.assert_close(ours, literal)
    for a, b in zip(*(torch.autograd.grad(x, list(outputs.values())) for x in (ours, literal)), strict=True):
        torch.testing.assert_close(a, b)


def test_rows_say_what_was_measured(monkeypatch):
    monkeypatch.setattr(loss, "_LARGEST", 4 * 3 * 4 * 6 * 6 * 16)
    monkeypatch.setattr(loss, "LOSSES", ("dsch", "sch", "tdsrdh"))  # some of them
    rows = loss.benchmark_loss(samples=(6, 7), lengths=(16,), widths=(8, 4))
    names = [f"{name} loss, forward and backward" for name in ("dsch", "sch", "tdsrdh")]
    assert [row["what"].split(" (")[0] for row in rows] == [*names, *names, "step of the CLIPHash head"]
    assert rows[0]["ratio"] == pytest.approx(rows[0]["baseline_seconds"] / rows[0]["seconds"])
    assert rows[1]["ratio"] is None
    assert rows[3]["baseline"].startswith("(n, n, k) broadcast: not run, it takes")
    assert rows[3]["ratio"] is None
    assert rows[6]["size"] == "batch 128, 8→4→16"
    assert rows[6]["what"].endswith(f"(loss {100 * rows[6]['ratio']:.1f} %)")


def test_the_loss_in_one_piece_has_the_value_of_the_loss():
    outputs, labels = loss.draw_batch(12, 16)
    torch.testing.assert_close(loss.one_piece_dsch(outputs, labels, 16), DSCHLoss(n_bits=16)(outputs, labels))


def test_batches_are_measured_in_tiles_and_in_one_piece_where_that_fits(monkeypatch):
    monkeypatch.setattr(loss, "_LARGEST", 5 * 4 * 4 * 6 * 6)
    rows = loss.benchmark_batches(samples=(6, 7), k=16)
    assert [row["what"] for row in rows] == ["dsch loss in tiles", "dsch loss in one piece", "dsch loss in tiles"]
    assert rows[0]["ratio"] == pytest.approx(rows[0]["baseline_seconds"] / rows[0]["seconds"])
    assert rows[2]["baseline"].startswith("one piece: not run, it takes")
    assert rows[2]["ratio"] is None
