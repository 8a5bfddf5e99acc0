"""The card that a saved model carries."""

import re

import yaml

from channelhash.models import load_model
from channelhash.models.description import ModelFacts, model_card
from small_runs import feature_config, run_command, write_features


def test_a_card_says_what_the_model_is_and_how_it_was_trained():
    card = model_card(
        ModelFacts("small", 33, ("image", "text"), 1_234_567, "abc"),
        settings={"loss": {"name": "dsch", "kappa_q": 0.01}},
        epochs=30,
        validation={"image->text": 0.5, "text->image": 0.61234},
    )
    front = yaml.safe_load(card.split("---\n")[1])
    assert front == {"library_name": "channelhash", "tags": ["cross-modal-hashing", "image", "text"]}
    assert "codes of 33 bits (5 bytes an item)" in card
    assert "1,234,567 trained parameters, fingerprint\n`abc`" in card
    assert yaml.safe_load(re.search(r"```yaml\n(.*?)```", card, re.DOTALL)[1]) == {
        "loss": {"name": "dsch", "kappa_q": 0.01}
    }
    assert "| image → text | text → image |\n|---:|---:|\n| 50.0 | 61.2 |" in card


def test_what_is_not_known_has_no_section():
    card = model_card(ModelFacts("small", 16, ("text",), 5, "abc"))
    assert "## Training" not in card
    assert "mAP in percent" not in card
    assert 'encode_texts(["a dog on a beach"])' in card


def test_a_trained_run_has_a_card_without_paths(tmp_path):
    config = feature_config(tmp_path / "run.json", write_features(tmp_path / "features.npz"), epochs=2)
    assert run_command("train", config, "--out", tmp_path / "run") == 0
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    model = load_model(tmp_path / "run")
    assert model.fingerprint() in card
    assert "kappa_q" in card
    assert "| image → text | text → image |" in card
    assert str(tmp_path) not in card
    for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        compile(block, "README.md", "exec")
