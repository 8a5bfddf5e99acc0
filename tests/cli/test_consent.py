"""Code that a downloaded folder names never runs without consent, and nested loaders never trust
any.
"""

import ast
import contextlib
import json

import pytest
from typer.main import get_command

from channelhash.cli.main import app
from channelhash.models.backbones import load_open_clip
from channelhash.models.extractors import Extractor
from pages import ROOT
from refusals import check_refusal, refusal


def test_every_command_that_reads_a_model_has_the_option():
    commands = get_command(app).commands
    commands |= {f"index {name}": command for name, command in commands["index"].commands.items()}
    without = {
        name
        for name, command in commands.items()
        if "trust_code" not in {each.name for each in command.params}
    }
    groups = {"data", "index", "config"}
    # made anew, or read where no other name is trusted
    no_model = {"compress", "demo", "experiment", "landscape", "list"}
    of_stores = ("delete", "info", "push", "check", "repair", "backup")
    assert without == groups | no_model | {f"index {name}" for name in of_stores}


_CALLS = {"torch.load": ("weights_only", True), "SentenceTransformer": ("trust_remote_code", False)}
_NEVER = ("pickle", "cPickle", "dill", "joblib", "cloudpickle", "marshal", "shelve")


def test_nothing_in_the_package_unpickles_or_trusts_code_of_others():
    seen, forbidden = (
        set(),
        ("eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.jit.load"),
    )
    files = {
        file: ast.parse(file.read_text(encoding="utf-8"))
        for file in (ROOT / "src" / "channelhash").rglob("*.py")
    }
    for file, node in ((file, node) for file, tree in files.items() for node in ast.walk(tree)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            assert not {name.partition(".")[0] for name in names} & {*_NEVER}, file
        if isinstance(node, ast.Call):
            given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            name, where = ast.unparse(node.func), f"{file.name}: {ast.unparse(node.func)}"
            for call, (option, value) in _CALLS.items():
                if name.endswith(call):
                    assert given.get(option) is value, where
                    seen.add(call)
            assert not given.get("allow_pickle"), where  # NumPy's default is False
            assert not given.get("trust_remote_code"), where
            assert name not in forbidden, where
    assert seen == {*_CALLS}


@pytest.mark.slow
def test_a_sentence_transformer_that_brings_code_is_refused(tmp_path):
    pytest.importorskip("sentence_transformers")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nclass Evil: pass\n")
    (tmp_path / "modules.json").write_text(
        json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}])
    )
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    with contextlib.chdir(tmp_path):
        refusal(lambda: Extractor(f"sentence-transformers:{tmp_path}", "text", 3)(["a dog"]))
    assert not (tmp_path / "mark").exists()


def test_an_open_clip_configuration_cannot_ask_for_code_of_others(tmp_path):
    config = {
        "embed_dim": 8,
        "vision_cfg": {},
        "text_cfg": {"tokenizer_kwargs": {"trust_remote_code": True}},
    }
    (tmp_path / "m.json").write_text(json.dumps(config))
    says = r"m\.json: asks to trust_remote_code, which is never done"
    check_refusal(says, load_open_clip, str(tmp_path / "m.json"), None)
