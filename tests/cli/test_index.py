"""``index`` and ``search`` over stores, as a person runs them."""

import json
import re
import shutil
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

import channelhash as ch
from channelhash.search.hits import SearchOptions
from channelhash.search.query import search_store
from picture_runs import photograph, tiny_clip, write_pictures
from small_runs import assert_refused, run_command, run_json, run_text, write_features
from small_stores import picture_folder, small_model


@pytest.fixture(scope="module")
def store(tmp_path_factory, saved_model):
    """A store of a table with a column of years; `test_…` below only read it."""
    folder = tmp_path_factory.mktemp("store")
    table = write_pictures(folder / "data", 12)
    lines = table.read_text().splitlines()
    table.write_text(
        "\n".join([f"{lines[0]},year", *(f"{line},{2010 + i}" for i, line in enumerate(lines[1:]))])
    )
    assert run_command("index", "create", folder / "s", table, "--encoder", saved_model) == 0
    return folder / "s"


def results(capsys, *arguments):
    return run_json(capsys, "search", *arguments)["results"]


def test_a_folder_of_pictures_from_nothing_to_answers(tmp_path, saved_model, capsys):
    photos, place = picture_folder(tmp_path / "photos", 5), tmp_path / "s"
    (photos / "0.png").rename(photos / "horses.png")
    # which may come before the first item
    assert run_command("index", "create", place, "--encoder", saved_model) == 0
    assert_refused(capsys, "search", place, "--text", "red", says="this store has no items yet")
    done = run_json(capsys, "index", "add", place, photos)
    assert (done["added"], done["items"], done["problems"]) == (5, 5, [])
    assert [hit["id"] for hit in results(capsys, place, "horses", "--by", "words")] == [
        "horses.png"
    ]
    (photos / "words.png").write_text("no picture")
    Image.new("RGB", (30, 20)).save(photos / "new.png")
    assert run_command("index", "add", place, photos) == 0
    out, err = capsys.readouterr()
    assert "1 items added, 0 replaced, 5 unchanged, 1 left out" in out
    assert "left out: unreadable picture" in err
    # The store has its own copy of the model, and the question is the picture itself.
    hits = results(capsys, place, "--image", photos / "new.png", "-k", "2")
    assert (hits[0]["id"], hits[0]["distance"], hits[0]["image"]) == (
        "new.png",
        0,
        str(photos / "new.png"),
    )
    assert ch.load_model(place).fingerprint() == ch.open_store(place).model
    (photos / "new.png").unlink()
    done = run_json(capsys, "index", "add", place, photos, "--prune")
    assert (done["unchanged"], done["pruned"], done["items"]) == (5, 1, 5)
    done = run_json(capsys, "index", "delete", place, "horses.png", "nobody")
    assert done == {"deleted": 1, "unknown": ["nobody"], "items": 4}


@pytest.mark.parametrize(
    ("words", "asked", "options"),
    [
        (("--like", "item003", "--modality", "text"), {"like": "item003"}, {"modality": "text"}),
        (("--like", "item003", "--by", "text"), {"like": "item003", "by": "text"}, {}),
        (("--like", "item003", "--radius", 3), {"like": "item003"}, {"radius": 3}),
        (("red one", "--by", "image", "-k", 12), {"text": "red one", "by": "image"}, {"k": 12}),
        (("red", "--where", "year > 2014"), {"text": "red"}, {"where": "year > 2014"}),
        (("red", "--minus", "dark"), {"text": "red", "minus": ["dark"]}, {}),
        (("red", "--minus-like", "item004"), {"text": "red", "minus_like": ["item004"]}, {}),
    ],
)
def test_each_option_is_that_of_the_function(words, asked, options, store, capsys):
    with closing(ch.open_store(store)) as opened:
        wanted = search_store(opened, SearchOptions(**options), **asked)
    found = [(hit["distance"], hit["id"]) for hit in results(capsys, store, *words)]
    assert found == [(hit.distance, hit.id) for hit in wanted] != []


def test_search_prints_what_was_found_by_words_and_how_close_it_is(store, capsys):
    by_words = results(capsys, store, "--text", "red -dark", "--by", "words")
    assert by_words
    assert not any("dark" in hit["text"].split() for hit in by_words)
    shown = run_text(capsys, "search", store, "red", "--where", "id != 'item003'")
    assert "(found by words)" in shown
    shares = re.findall(r"[\d.]+(?= % of all)", shown)
    assert shares == sorted(shares, key=float, reverse=True) != []
    hit = results(capsys, store, "--like", "item003", "-k", 1, "--where", "id = 'item003'")[0]
    assert (hit["labels"], hit["metadata"]["year"]) == (["red"], 2013)
    assert (
        run_command("search", store, "--like", "item003", "--where", "year > 3000", "--radius", 2)
        == 0
    )
    assert (
        capsys.readouterr().out
        == f"0 answers: {store} has no item within 2 bits that passes year > 3000\n"
    )


def test_info_tells_what_a_store_a_run_or_a_file_holds(store, tmp_path, capsys):
    facts = run_json(capsys, "index", "info", store)
    assert (facts["items"], facts["n_bits"], facts["codes"]) == (12, 12, {"image": 12, "text": 12})
    assert facts["labels"] == {"blue": 4, "green": 4, "red": 4}
    assert facts["model"] == ch.load_model(store).fingerprint()
    assert "image 12, text 12" in run_text(capsys, "index", "info", store)
    ch.CodeSet(["a"], {"text": np.zeros((1, 1), np.uint8)}, None, 8).save(tmp_path / "c.parquet")
    assert run_json(capsys, "index", "info", tmp_path / "c.parquet")["codes"] == {"text": 1}


def test_delete_takes_a_filter(tmp_path, saved_model, capsys):
    table, delete = (
        write_pictures(tmp_path / "d", 6),
        ("index", "delete", tmp_path / "s", "--where", "label = 'red'"),
    )
    assert run_command("index", "create", tmp_path / "s", table, "--encoder", saved_model) == 0
    assert run_json(capsys, *delete) == {"deleted": 2, "unknown": [], "items": 4}
    assert "0 items deleted, 4 left" in run_text(capsys, *delete)


@pytest.fixture(scope="module")
def places(store, saved_model, tmp_path_factory):
    """What the words in braces of a refused command stand for."""
    root = tmp_path_factory.mktemp("places")
    for name, text in {"full/thesis.txt": "mine", "file": "mine"}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / "empty").mkdir()
    ch.CodeSet(["a"], {"text": np.zeros((1, 1), np.uint8)}, None, 8).save(root / "c.parquet")
    small_model(root / "other", seed=1)
    names = {name: root / name for name in ("full", "file", "empty", "gone", "new", "other")}
    return names | {
        "store": store,
        "model": saved_model,
        "root": root,
        "codes": root / "c.parquet",
        "photos": picture_folder(root / "photos", 2),
        "features": write_features(root / "f.npz", 4),
        "net": tiny_clip(root / "net.json"),
    }


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "index create {store} {photos} --encoder {model}",
            "add to it with `channelhash index add",
        ),
        ("index create {full} --encoder {model}", "no pictures in this folder or below it"),
        ("index create {full} {photos} --encoder {model}", "holds thesis.txt, but no store"),
        ("index create {file} --encoder {model}", "is a file"),
        ("index create {new} --encoder {gone}", "no such folder"),
        ("index create {new} --encoder {model} --exclude a", "SOURCE"),
        (
            "index create {new} {photos} --encoder run --encoder photo",
            "--encoder run photo: name one",
        ),
        ("index create {new} {photos} --encoder run --bits 64", "--encoder run: a run has its own"),
        ("index create {new} --encoder photo", "new: codes are fitted to items; name their SOURCE"),
        ("index create {new} {features} --encoder photo", "the items are features"),
        ("index create {new} {photos} --encoder features", "the items are images or text"),
        (
            "index create {new} {photos} --encoder openclip:{net} --method cca-itq",
            "needs images with",
        ),
        ("index create milvus+http://nowhere {photos} --encoder photo", "keeps no model"),
        ("index add {gone} {photos}", "no store; make one with `channelhash index create"),
        ("index add {codes} {photos}", "no store; make one with"),
        ("index add {store} {gone}", "no such folder"),
        ("index add {store} {file}", "a table ends in"),
        ("index add {store} {empty}", "no pictures in this folder or below it"),
        ("index add {store} {photos} --root {root}", "--root: goes with a table"),
        ("index add {store} {features}", "the items are features"),
        ("index add {store} {features} --captions {file}", "--captions: goes with a folder"),
        ("index add {store} {photos} --model {other}/model", "made by another model"),
        ("index delete {store}", "give the ids of the items to delete, or --where"),
        ("index delete {store} a --where year>1", "give the ids of the items to delete, or"),
        ("index delete {store} --where yaer>1", "'year'"),
        ("index delete {codes} a", "can only be read"),
        ("index info {gone}", "no such folder"),
        ("duplicates {store} --radius -1", "radius is -1"),
        ("duplicates {codes} --modality image", "no image codes"),
        ("duplicates {gone}", "gone: no such folder"),
        ("search {store} --text a --where year>", "where"),
        ("search {store} --text a --model {other}/model", "made by another model"),
    ],
)
def test_what_cannot_be_done_is_refused(places, capsys, command, says):
    words = [word.format(**places) for word in command.split()]
    assert_refused(capsys, *words, says=says)
    assert len(ch.open_store(places["store"])) == 12
    assert not places["new"].exists()


# Check, repair and back up


@pytest.fixture
def whole(tmp_path) -> Path:
    codes = np.random.default_rng(0).integers(0, 256, (400, 2), dtype=np.uint8)
    with closing(ch.open_store(tmp_path / "a.store", n_bits=16)) as store:
        metadata = [{"text": "a dog on a beach" * 10}] * 400
        store.add([f"item {i}" for i in range(400)], {"image": codes}, metadata=metadata)
        store.make_snapshot()
    return tmp_path / "a.store"


def test_damage_is_found_and_repaired_but_for_what_is_lost(whole, capsys):
    content = (whole / "items.sqlite").read_bytes()
    (whole / "items.sqlite").write_bytes(content.replace(b"a dog on", b"a cat on", 1))
    assert run_command("index", "check", whole) == 1
    out, err = capsys.readouterr()
    assert "items.sqlite: is not as it was when the store was closed" in out
    assert "the item is damaged" in out
    assert f"channelhash index repair {whole}" in err
    assert run_command("index", "check", whole, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"]
    assert {"where": "items.sqlite", "what": "is not as it was when the store was closed"} in told[
        "damaged"
    ]
    out = run_text(capsys, "index", "repair", whole)
    assert "lost: item " in out
    assert "it holds 399 items" in out
    assert run_command("index", "check", whole) == 0
    assert len(ch.open_store(whole)) == 399


def test_a_damaged_model_is_found_and_a_lost_snapshot_made_anew(whole, capsys):
    (whole / "model").mkdir()
    (whole / "model" / "config.json").write_text("{")
    assert run_command("index", "check", whole) == 1
    out = capsys.readouterr().out
    assert "model: config.json: " in out
    assert "model: model.safetensors: is missing" in out
    shutil.rmtree(whole / "model")
    next(whole.glob("snapshot-*/image/names.npy")).unlink()
    assert run_command("index", "check", whole) == 1
    assert "names.npy: is missing" in capsys.readouterr().out
    done = run_json(capsys, "index", "repair", whole)
    assert (len(done["damaged"]), done["lost"], done["items"]) == (1, [], 400)
    assert run_command("index", "check", whole) == 0


def test_a_backup_is_a_store(whole, tmp_path, capsys):
    assert "400 items" in run_text(capsys, "index", "backup", whole, tmp_path / "copy")
    assert run_command("index", "check", tmp_path / "copy") == 0
    assert_refused(capsys, "index", "backup", whole, tmp_path / "copy", says="is there already")
    done = run_json(capsys, "index", "backup", whole, tmp_path / "second")
    assert done["items"] == 400
    assert done["bytes"] > 0


@pytest.mark.parametrize("command", ["check", "repair", "backup"])
def test_only_stores_in_folders_are_cared_for(command, tmp_path, capsys):
    more = [tmp_path / "copy"] * (command == "backup")
    for address in ("milvus+http://localhost:19530/photos", tmp_path / "none", tmp_path):
        assert run_command("index", command, address, *more) == 2
        assert re.fullmatch("(?!.*Traceback).*\n", capsys.readouterr().err)


# Near-duplicates


@pytest.fixture
def copies(tmp_path):
    """Two near groups and one item that is far from all, with pictures."""
    folder = tmp_path / "s"
    numbers = [0b11111111, 0b0, 0b1, 0b11110000, 0b111]
    with ch.open_store(folder, n_bits=8) as opened:
        metadata = [
            {"image": str(tmp_path / f"{number}.png"), "year": number} for number in numbers
        ]
        for values in metadata:
            Image.new("RGB", (8, 8)).save(values["image"])
        opened.add([*"abcde"], np.array(numbers, np.uint8)[:, None], metadata=metadata)
    return folder


def test_groups_as_json_and_as_a_table_and_as_a_sheet(copies, tmp_path, capsys):
    found = run_json(capsys, "duplicates", copies, "--radius", 2)
    assert (found["groups"], found["distances"], found["problems"]) == (
        [["b", "c", "e"]],
        [[0, 1, 3]],
        [],
    )
    assert (found["keepers"], found["reasons"]) == (["b"], ["all are equal"])
    assert [photo["path"] for photo in found["photos"][0]] == [
        str(tmp_path / f"{number}.png") for number in (0, 1, 7)
    ]
    out = run_text(
        capsys,
        "duplicates",
        copies,
        "--radius",
        2,
        "--where",
        "year < 7",
        "--sheet",
        tmp_path / "g.png",
    )
    assert "2 items in 1 groups" in out
    assert Image.open(tmp_path / "g.png").width > 200
    assert "No near-duplicates within 0 bits" in run_text(
        capsys, "duplicates", copies, "--radius", 0
    )
    # Different pictures are no duplicates unless codes alone are to count.
    Image.fromarray(np.eye(8, dtype=np.uint8) * 200).save(tmp_path / "1.png")
    assert run_json(capsys, "duplicates", copies, "--radius", 1)["groups"] == []
    assert run_json(capsys, "duplicates", copies, "--radius", 1, "--no-pictures")["groups"] == [
        ["b", "c"]
    ]


def test_the_rest_is_listed_moved_and_moved_back(copies, tmp_path, capsys):
    """All five are black; their ids are no paths, so that a file keeps its whole path below the
    folder.
    """
    rest = [str(tmp_path / f"{number}.png") for number in (0, 1, 240, 7)]
    assert run_text(capsys, "duplicates", copies, "--rest").splitlines() == rest
    assert run_text(capsys, "duplicates", copies, "--rest", "-0").split("\0") == [*rest, ""]
    folder = tmp_path / "moved"
    assert "4 files would be moved, by --yes" in run_text(
        capsys, "duplicates", copies, "--move", folder
    )
    assert not folder.exists()
    moved = run_json(capsys, "duplicates", copies, "--move", folder, "--yes")
    assert moved["paths"] == dict(
        zip("bcde", (str(folder / path.lstrip("/")) for path in rest), strict=True)
    )
    assert "No near-duplicates" in run_text(capsys, "duplicates", copies)
    assert "4 files moved back" in run_text(capsys, "duplicates", copies, "--undo")
    run_text(capsys, "duplicates", copies, "--not", "a", "--not", "b")
    assert run_json(capsys, "duplicates", copies)["groups"] == [["a", "c", "d", "e"]]
    assert "Took back --not" in run_text(capsys, "duplicates", copies, "--undo")
    assert "no decision" in run_text(capsys, "duplicates", copies, "--undo")
    assert_refused(capsys, "duplicates", copies, "--undo", "--rest", says="give one of them")


def test_what_may_be_the_original_as_well_is_marked_and_stays(copies, tmp_path, capsys):
    for number, image in {0: photograph(0), 1: ImageOps.mirror(photograph(0))}.items():
        image.save(tmp_path / f"{number}.png")
    select = ("duplicates", copies, "--where", "year < 2")
    assert run_json(capsys, *select)["unsure"] == [["c"]]
    assert "unsure" in run_text(capsys, *select)
    assert run_text(capsys, *select, "--rest") == ""
    moved = run_json(capsys, *select, "--move", tmp_path / "moved", "--yes")
    assert moved["paths"] == {}
    assert moved["problems"] == ["c: stays, unsure which is the original, it or b"]


def test_a_search_says_what_is_close(tmp_path, capsys):
    """A store of many near items, and one far from all of them."""
    codes = np.random.default_rng(0).integers(0, 4, (200, 1), dtype=np.uint8)
    with ch.open_store(tmp_path / "s", n_bits=64) as opened:
        packed = np.concatenate([codes, np.zeros((200, 7), np.uint8)], axis=1)
        opened.add([f"{row:03}" for row in range(200)], packed)
        opened.add(["far"], np.full((1, 8), 255, np.uint8))
    for name, close in (("007", True), ("far", False)):
        answer = run_json(capsys, "search", tmp_path / "s", "--like", name)
        assert answer["close"] is close
        printed = run_text(capsys, "search", tmp_path / "s", "--like", name)
        assert ("nothing close" in printed) is not close
        assert re.findall(r"\w+(?= +[│┃])", printed.splitlines()[2]) == ["rank", "id", "than"]
        shares = [min(99.9, 100 - 100 * result["match"]) for result in answer["results"]]
        assert re.findall(r"[\d.]+(?= % of all)", printed) == [
            f"{share:.1f}" for share in accumulate(shares, min)
        ]
