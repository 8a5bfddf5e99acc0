"""The landscape shows what the losses compute; its page, seen through a browser, computes the
same.
"""

import html
import json
import math
import re
import subprocess

import pytest
import torch
from hypothesis import given, settings, strategies as st

from channelhash.lab.experiments.landscape import _page_facts, pair_loss, write_page
from channelhash.losses import DSCHLoss, SCHLoss
from serve.test_page import chromium

OTHER = DSCHLoss(64, lambda_neg=20.0, tau=2.0, gamma_w=4.0, gamma_l=2.0)


def loss_of_two_samples(loss, similarity: float, share: float) -> float:
    """The loss itself on two samples with such labels and codes; one modality."""
    angle = math.acos(1 - 2 * share)
    codes = torch.zeros(2, loss.n_bits, dtype=torch.float64)
    codes[0, 0], codes[1, 0], codes[1, 1] = 1, math.cos(angle), math.sin(angle)
    labels = torch.tensor([[1, 0], [similarity, math.sqrt(1 - similarity**2)]], dtype=torch.float64)
    return loss({"image": codes}, labels).item()


@pytest.mark.parametrize(
    "loss",
    [
        DSCHLoss(32, kappa_q=0.0),
        DSCHLoss(
            24, lambda_neg=9.0, tau=2.5, gamma_w=3.0, gamma_l=2.0, alpha=3.0, beta=0.5, kappa_q=0.0
        ),
        SCHLoss(32),
        SCHLoss(8, tau=1.0, alpha=2.0, beta=0.25),
        DSCHLoss(16, gamma_l=2.0, beta=0.5, kappa_q=0.0),
    ],
)
@settings(max_examples=40)
@given(
    similarity=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-3, 1 - 1e-3)),
    share=st.floats(0, 1),
)
def test_a_pair_costs_what_the_loss_gives_two_samples(loss, similarity, share):
    # Of the four ordered pairs two are of a sample with itself, which costs nothing; the mean is
    # over n² = 4.
    expected = 2 * loss_of_two_samples(loss, similarity, share)
    assert float(pair_loss(loss, similarity, share * loss.n_bits)) == pytest.approx(
        expected, abs=1e-5
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "landscape.html"
    write_page(path)
    return path


def opened(path, address: str = "") -> str:
    """The page's document after its scripts ran."""
    command = [
        chromium(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
    ]
    command += [
        f"--user-data-dir={path.parent / 'profile'}",
        "--dump-dom",
        f"{path.as_uri()}{address}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return html.unescape(done.stdout)


def reading(document: str) -> dict[str, float]:
    (tag,) = re.findall(r'<p id="reading"[^>]*>', document)
    return {name: float(value) for name, value in re.findall(r'data-(\w+)="([^"]+)"', tag)}


def test_the_page_names_no_other_host_and_holds_its_values(page):
    text = page.read_text()
    assert not re.findall(r"(?:https?:)?//[a-z]+\.", text)
    assert not re.findall(r"<(?:link|script|img)[^>]+(?:src|href)=(?!\"data:)", text)
    assert "__FACTS__" not in text
    (facts,) = re.findall(
        r'<script type="application/json" id="facts">(.*?)</script>', text, flags=re.DOTALL
    )
    assert (json.loads(facts), {row[0] for row in _page_facts()["checks"]}) == (
        _page_facts(),
        {"dsch", "sch"},
    )


@pytest.mark.browser
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("(1 - S) ** p.gamma_w", "(1 - S) ** 8"), ('p.loss === "sch" ? 1 : p.gamma_l', "p.gamma_l")],
)
def test_a_wrong_formula_is_noticed(page, tmp_path, right, wrong):
    text = page.read_text()
    assert text.count(right) == 1
    (tmp_path / "wrong.html").write_text(text.replace(right, wrong))
    document = opened(tmp_path / "wrong.html")
    assert "These numbers are not those of the Python losses" in document
    assert 'id="check" class="bad"' in document


@pytest.mark.browser
@pytest.mark.parametrize(("address", "loss", "similarity", "distance"), [
    ("", DSCHLoss(32), 0.4, 20),
    ("#loss=sch&k=64&tau=5&S=0.25&d=60.5", SCHLoss(64, tau=5.0), 0.25, 60.5),
    ("#loss=dsch&k=64&lambda_neg=20&tau=2&gamma_w=4&gamma_l=2&S=0.3&d=60", OTHER, 0.3, 60),
    ("#loss=nothing&k=many", DSCHLoss(72), 0.4, 45),
])  # fmt: skip
def test_the_address_sets_the_page_whose_numbers_are_those_of_python(
    page, address, loss, similarity, distance
):
    document = opened(page, address)
    assert reading(document)["loss"] == pytest.approx(
        float(pair_loss(loss, similarity, distance)), rel=1e-12
    )
    assert (
        f"{len(_page_facts()['checks'])} values of the Python losses come out the same" in document
    )
    assert 'class="bad"' not in document


@pytest.mark.browser
def test_sliders_and_keys_move_the_page(page, tmp_path):
    script = """<script>
      const set = (name, value) => { inputs[name].value = value;
        inputs[name].dispatchEvent(new Event("input", {bubbles: true})); };
      const before = byId("surface").toDataURL();
      byId("surface").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft", cancelable: true}));
      const turned = byId("surface").toDataURL() !== before;
      set("k", 64); set("tau", 4); set("gamma_w", 2); set("S", 0.2); set("d", 50);
      const heat = byId("heat").toDataURL();
      document.querySelector("[value=sch]").click();
      const tauOfSch = inputs.tau.value;
      document.querySelector("[value=dsch]").click();
      document.body.dataset.seen = JSON.stringify([turned, heat === byId("heat").toDataURL(), tauOfSch,
        inputs.lambda_neg.value, inputs.lambda_neg.max, inputs.gamma_w.disabled, location.hash]);
    </script></body>"""
    (tmp_path / "driven.html").write_text(page.read_text().replace("</body>", script))
    document = opened(tmp_path / "driven.html")
    (seen,) = re.findall(r"data-seen='?\"?(\[.*?\])[\"']?[ >]", document)
    turned, same_again, tau_of_sch, lambda_neg, most, disabled, address = json.loads(seen)
    assert (turned, same_again, tau_of_sch, lambda_neg, most, disabled) == (
        True,
        True,
        "3",
        "32",
        "64",
        False,
    )
    assert "gamma_w=2" in address
    expected = pair_loss(DSCHLoss(64, tau=4.0, gamma_w=2.0), 0.2, 50)
    assert reading(document)["loss"] == pytest.approx(float(expected), rel=1e-12)
