"""The card that a saved model carries."""

import re

import yaml

from channelhash.models import load_model
from channelhash.models.description import model_card
from small_runs import feature_config, run_command, write_features


def test_a_card_says_what_the_model_is_and_how_it_was_trained():
    settings = {"loss": {"name": "dsch", "kappa_q": 0.01}}
    card = model_card("small", 33, ("image", "text"), 1_234_567, "abc", settings)
    front = yaml.safe_load(card.split("---\n")[1])
    assert front == {"library_name": "channelhash", "tags": ["cross-modal-hashing", "image", "text"]}
    assert "codes of 33 bits (5 bytes an item)" in card
    assert "1,234,567 trained parameters, fingerprint\n`abc`" in card
    assert yaml.safe_load(re.search(r"```yaml\n(.*?)```", card, re.DOTALL)[1]) == settings
    unknown = model_card("small", 16, ("text",), 5, "abc")
    assert "## Training" not in unknown
    assert 'encode_texts(["a dog on a beach"])' in unknown


def test_a_trained_run_has_a_card_without_paths(tmp_path):
    config = feature_config(tmp_path / "run.json", write_features(tmp_path / "features.npz"), epochs=2)
    assert run_command("train", config, "--out", tmp_path / "run") == 0
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    model = load_model(tmp_path / "run")
    assert model.fingerprint() in card
    assert "kappa_q" in card
    assert str(tmp_path) not in card
    for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        compile(block, "README.md", "exec")
