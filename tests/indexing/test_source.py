"""What is read from folders and tables, what a store keeps of it, and what becomes of folders that
change.
"""

import json
import os
import shutil
import unicodedata
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.cli.serve import _index_again
from channelhash.data.folder import _OF_OTHERS, Exclusions
from channelhash.data.images import image_problem
from channelhash.indexing import encode
from channelhash.indexing.source import PhotoSource, Source
from channelhash.indexing.stores import read_again
from channelhash.search import Address
from channelhash.search.browsing import date_of
from channelhash.search.question import query_like
from channelhash.utils.seeds import generator
from extras import needs
from picture_runs import as_written, write_pictures
from refusals import check_refusal
from small_runs import feature_config, write_features
from small_stores import encode_into, picture_folder


def test_a_table_brings_its_further_columns_as_metadata(tmp_path):
    write_pictures(tmp_path, 4)
    table = tmp_path / "more.csv"
    table.write_text(
        "id,image,text,labels,year,price,code,place\n"
        "a,images/0.png,one,x;y,2019,1.5,007,Rome\n"
        "b,images/1.png,two,,2020,2,012,\n"
        "c,images/gone.png,three,x,2021,3,013,Bonn\n"
        "a,images/2.png,twice,x,1,1,014,Nowhere\n"
    )
    source = Source.read(table)
    assert source.records.ids == ("a", "b")
    assert source.metadata == [
        {"text": "one", "image": str(tmp_path / "images/0.png"), "labels": ["x", "y"],
         "year": 2019, "price": 1.5, "code": "007", "place": "Rome"},
        {"text": "two", "image": str(tmp_path / "images/1.png"), "labels": [],
         "year": 2020, "price": 2.0, "code": "012", "place": None},
    ]  # fmt: skip
    assert isinstance(source.metadata[0]["year"], int)
    assert len(source.records.problems) == 2


def test_features_and_configurations_are_sources(tmp_path):
    needs("train")
    features = write_features(tmp_path / "f.npz", 20)
    config = feature_config(tmp_path / "c.yaml", features)
    for path in (features, config):
        source = Source.read(path)
        assert len(source.records) == 20
        assert set(source.metadata[0]) == {"labels"}
        np.testing.assert_array_equal(source.records.items["image"], np.load(features)["image"])


def source_of(path, **columns):
    """The source that a table of so many rows is, as its ending says."""
    n = len(next(iter(columns.values())))
    columns = {"id": [f"i{row}" for row in range(n)], "text": ["red"] * n, **columns}
    rows = zip(*columns.values(), strict=True)
    if path.suffix == ".parquet":
        needs("parquet")
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows))
    else:
        path.write_text("\n".join(map(",".join, (columns, *rows))))
    return Source.read(path)


def values_of(source, column):
    return [row.get(column) for row in source.metadata]


@pytest.mark.parametrize(("cells", "expected"), [
    (["1294030472427835393", "-1", ""], [1294030472427835393, -1, None]),
    (["12345678901234567890", "7"], ["12345678901234567890", 7]),
    (["9" * 5000, "7"], ["9" * 5000, 7]),
    (["1.5", "1294030472427835393", "1e-3"], [1.5, 1294030472427835393, 0.001]),
    (["x" * 140_000], ["x" * 140_000]),
    *(
        ([text, "7"], [text, "7"])
        for text in ("00123", "+5", "1_000", " 7", "0x10", "true", "NaN", "inf", "1e999", "x")
    ),
])  # fmt: skip
def test_numbers_in_csv_are_those_that_json_writes(tmp_path, cells, expected):
    values = values_of(source_of(tmp_path / "t.csv", v=cells), "v")
    assert values == expected
    assert [type(value) for value in values] == [type(value) for value in expected]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_in_typed_tables_texts_are_no_numbers_decimals_are_and_lists_are_texts(tmp_path, ending):
    long = [2**63, 1] if ending == "jsonl" else np.array([2**63, 1], np.uint64)
    source = source_of(tmp_path / f"t.{ending}", v=["1", "2"], n=long, f=[1.5, float("nan")])
    assert (values_of(source, "v"), values_of(source, "n")) == (["1", "2"], [str(2**63), 1])
    assert values_of(source, "f") == [1.5, None]
    lists = [[1.0, None, float("nan")], []]
    source = source_of(tmp_path / "t.parquet", price=[Decimal("1.50"), Decimal(12)], seen=lists)
    assert (values_of(source, "price"), values_of(source, "seen")) == ([1.5, 12], [["1"], []])


@pytest.mark.parametrize(("ending", "place", "bad"), [
    ("csv", "line 3", "x\0y"),
    ("jsonl", "line 2", "x\0y"),
    ("jsonl", "line 2", {"a": 1}),
    ("jsonl", "line 2", [["x"]]),
    ("parquet", "row 2", "x\0y"),
])  # fmt: skip
def test_one_value_that_no_store_can_hold_costs_its_row(tmp_path, ending, place, bad):
    path = tmp_path / f"t.{ending}"
    source = source_of(path, v=["a", bad, "c"])
    assert (source.records.ids, values_of(source, "v")) == (("i0", "i2"), ["a", "c"])
    (line,) = source.records.problems
    assert line.startswith(f"{path}, {place} (id i1): the column 'v' holds ")
    assert source.records.removed == {"value that cannot be stored": 1}


@pytest.mark.parametrize("kind", ["bytes", "struct", "map", "lists of lists"])
def test_a_column_without_any_value_for_a_store_is_left_out(tmp_path, kind):
    needs("parquet")
    import pyarrow as pa

    column = {
        "bytes": pa.array([b"\1", b"\2"]),
        "struct": pa.array([{"a": 1}, {"a": 2}]),
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "lists of lists": pa.array([[["a"]], [["b"]]]),
    }[kind]
    source = source_of(tmp_path / "t.parquet", v=column, year=[2019, 2020])
    assert source.metadata == [{"text": "red", "year": 2019}, {"text": "red", "year": 2020}]
    (line,) = source.records.problems
    assert line.startswith(
        f"{tmp_path / 't.parquet'}: the column 'v' is left out: its row 1 holds "
    )


@pytest.mark.parametrize(
    ("header", "place"),
    [
        (",id,text,year", 1),
        ("id,text,year,,", 4),
        ('id,text,year,"size """', 4),
        ("id,text,labels,label,year", 4),
    ],
)
def test_a_column_without_a_usable_name_is_left_out(tmp_path, header, place):
    names = header.split(",")
    cells = {"id": "a", "text": "red", "labels": "", "year": "2019"}
    (tmp_path / "t.csv").write_text(
        header + "\n" + ",".join(cells.get(name, "0") for name in names) + "\n"
    )
    source = Source.read(tmp_path / "t.csv")
    assert source.metadata == [{"text": "red", "year": 2019}]
    assert source.records.problems[0].startswith(
        f"{tmp_path / 't.csv'}: column {place} is left out: "
    )


def test_columns_with_usual_names_are_no_metadata(tmp_path):
    (tmp_path / "t.csv").write_text("ID;Caption;Tags;year\na;red;sea;2019\n")
    (metadata,) = Source.read(tmp_path / "t.csv").metadata
    assert metadata == {"text": "red", "labels": ["sea"], "year": 2019}
    (tmp_path / "t.csv").write_text("ID;Text;Tags;Class\na;red;sea;2019\n")
    (metadata,) = Source.read(tmp_path / "t.csv").metadata
    assert metadata == {"text": "red", "Tags": "sea", "Class": 2019}


def test_a_repeated_id_whose_first_row_is_bad_has_the_values_of_its_own_row(tmp_path):
    (tmp_path / "t.csv").write_text("id,text,year\na,,2019\na,red,2020\na,blue,2021\n")
    assert Source.read(tmp_path / "t.csv").metadata == [{"text": "red", "year": 2020}]


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    (folder / ".channelhash").mkdir(parents=True)
    (folder / "captions.csv").touch()
    return folder


def test_folder_and_store_move_together_or_the_store_alone(photos, tmp_path, monkeypatch):
    PhotoSource(photos, photos / "captions.csv", exclude=("*.png", "raw/*")).write(
        photos / ".channelhash"
    )
    moved = shutil.move(photos, tmp_path / "disk" / "pictures")
    source = PhotoSource.read(moved / ".channelhash")
    assert source == PhotoSource(moved, moved / "captions.csv", ("*.png", "raw/*"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    PhotoSource(Path("disk/pictures")).write(Path("elsewhere"))
    shutil.move("elsewhere", "moved")
    assert PhotoSource.read(Path("moved")) == PhotoSource(moved)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"folder": "/a", "checksum": "0"}'])
def test_a_damaged_one_is_one_line(photos, content):
    PhotoSource(photos).write(photos / ".channelhash")
    (photos / ".channelhash" / "source.json").write_text(content)
    check_refusal(
        r"source\.json: is damaged; remove it, and name folder",
        PhotoSource.read,
        photos / ".channelhash",
    )
    # not made anew
    check_refusal(
        "was not made of a folder", _index_again, Address.parse(f"{photos}/gone"), False, None
    )


# Folders as people have them: files move, captions come in files, not everything is an image.


def test_moved_files_keep_codes_captions_and_metadata_and_copies_are_no_moves(
    tmp_path, model, store, no_encoding
):
    folder, captions = picture_folder(tmp_path / "photos", 6), tmp_path / "c.csv"
    captions.write_text("image,caption\n0.png,blue\ndeep/er/1.png,a dark red picture\n")
    encode_into(store, model, Source.read(folder, captions=captions))
    store.update(["0.png"], [{"mine": 7}])
    before = {item.id: item for item in store.get(store.ids())}
    os.renames(folder / "0.png", folder / "other" / "new.png")
    os.rename(folder / "2.png", folder / "22.png")
    with no_encoding():
        done = encode_into(store, model, Source.read(folder))
    assert (done.moved, done.added, done.replaced, done.unchanged, done.items) == (2, 0, 0, 4, 6)
    for old, new in (("0.png", "other/new.png"), ("2.png", "22.png")):
        assert old not in store
        item = store.get([new])[0]
        np.testing.assert_equal(item.codes, before[old].codes)
        states = [
            str(each.metadata.pop("encoded_from")).split()[::3] for each in (item, before[old])
        ]
        assert states[0] == states[1]
        assert item.metadata == before[old].metadata | {"image": str(folder / new)}
    done = encode_into(store, model, Source.read(folder))
    assert (done.moved, done.unchanged) == (0, 6)
    (folder / "copy.png").write_bytes((folder / "22.png").read_bytes())
    (folder / "4.png").unlink()
    Image.new("RGB", (40, 30), "white").save(folder / "44.png")
    done = encode_into(store, model, Source.read(folder))
    assert (done.moved, done.added, done.items) == (0, 2, 8)


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_is_no_move_while_its_item_has_a_file_of_its_own(seed, tmp_path, model, store):
    """Items are left out of the source now, and copies of their files are in it."""
    draw = generator(0, "own file", seed)
    folder = picture_folder(tmp_path / "photos", 6)
    encode_into(store, model, Source.read(folder))
    left_out = draw.permutation(store.ids()).tolist()[: int(draw.integers(2, 5))]
    gone = left_out[: int(draw.integers(0, len(left_out)))]
    for name in left_out:
        shutil.copy(folder / name, folder / f"copy of {Path(name).name}")
        if name in gone:
            (folder / name).unlink()
    done = encode_into(store, model, Source.read(folder, exclude=left_out))
    assert done.moved == len(gone)
    assert done.added == len(left_out) - len(gone)


def test_several_captions_are_kept_and_their_code_is_of_the_mean(
    tmp_path, model, store, monkeypatch
):
    folder, captions = picture_folder(tmp_path / "photos", 5), tmp_path / "tokens.txt"
    captions.write_text(
        "1.png#0\ta dark red picture\n1.png#1\ta green picture\nlost.png#0\tx\n0.png#0\tblue\n"
    )
    monkeypatch.setattr(encode, "_BATCH", 2)
    done = encode_into(store, model, Source.read(folder, captions=captions))
    assert done.added == 5
    assert done.problems == (
        f"{captions}: pictures that are not there: 1, with 1 captions, such as lost.png",
    )
    item = store.get(["deep/er/1.png"])[0]
    assert item.metadata["text"] == "a dark red picture\na green picture"
    outputs = model.outputs("text", ["a dark red picture", "a green picture"]).numpy()
    mean = (outputs / np.linalg.norm(outputs, axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_array_equal(
        item.codes["text"], ch.codes.pack(ch.codes.binarize(mean[None]))[0]
    )
    np.testing.assert_array_equal(
        store.get(["0.png"])[0].codes["text"], model.encode_texts(["blue"])[0]
    )
    expected = model.encode_images([folder / name for name in store.ids()])
    np.testing.assert_array_equal(
        [item.codes["image"] for item in store.get(store.ids())], expected
    )
    assert store.get(["4.png"])[0].codes.keys() == {"image"}
    captions.write_text("1.png\tgreen\n")
    assert encode_into(store, model, Source.read(folder, captions=captions)).replaced == 1
    # without the file captions stay
    assert encode_into(store, model, Source.read(folder)).unchanged == 5


def test_what_is_left_out_is_counted_by_reason(tmp_path, model, store):
    folder = picture_folder(tmp_path / "photos", 4)
    for name in ("notes.txt", "a.gif", "raw/b.png", ".hidden/c.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("no picture")
    done = encode_into(store, model, Source.read(folder, exclude=["*.gif", "raw/"]))
    assert done.skipped == {"excluded": 2, "hidden": 1, "not a picture": 1}
    assert (done.problems, done.items) == ((), 4)
    assert encode_into(store, model, Source.read(folder, exclude=["deep/"]), prune=True).pruned == 2
    assert store.ids() == ["0.png", "2.png"]
    check_refusal(
        r"no pictures in this folder or below it; left out: 7 × excluded",
        Source.read,
        folder,
        exclude=["*"],
    )
    check_refusal("exclude", Source.read, folder, exclude=["!a.gif"])


def test_all_endings_of_jpeg_are_read_and_other_kinds_of_pictures_are_counted(
    tmp_path, monkeypatch
):
    needs = "raw needs rawpy: pip install 'channelhash[raw]'"
    monkeypatch.setattr("channelhash.data.folder.raw_problem", lambda: needs)
    folder = picture_folder(tmp_path / "photos", 1)
    names = ["a.jfif", "b.jpe", "c.JPE", "d.mpo", "e.pjpeg"]
    for name in names:
        Image.new("RGB", (4, 3)).save(folder / name, "JPEG")
    for name in ("1.CR2", "2.cr2", "3.nef", "4.mp4", "5.svg", "6.txt"):
        (folder / name).write_bytes(b"II*\0")
    one_each = (
        ".mp4: videos are not read",
        ".svg: pictures of this format are not read",
        "not a picture",
    )
    records = Source.read(folder).records
    assert (sorted(records.ids), records.removed) == (
        ["0.png", *names],
        dict.fromkeys(one_each, 1) | {needs: 3},
    )
    for name in ("0.png", *names):
        (folder / name).unlink()
    check_refusal(r"no pictures .*; left out: .*3 × raw needs rawpy: ", Source.read, folder)


def test_the_date_is_the_cameras_or_else_the_files_and_the_size_is_upright(tmp_path, model, store):
    folder = picture_folder(tmp_path / "photos", 2)
    (folder / "dated.jpg").write_bytes(
        as_written(Image.new("RGB", (40, 30), "white"), 6).getvalue()
    )
    os.utime(folder / "0.png", (1563099630, 1563099630))
    encode_into(store, model, Source.read(folder))
    dated, other = (item.metadata for item in store.get(["dated.jpg", "0.png"]))
    assert (dated["taken"], dated["width"], dated["height"]) == ("2019-07-14 10:20:30", 30, 40)
    assert ("date" in dated, "taken" in other) == (False, False)
    assert (date_of(dated), date_of(other)) == (
        dated["taken"],
        str(datetime.fromtimestamp(1563099630)),
    )
    assert (other["width"], other["height"]) == Image.open(folder / "0.png").size


@pytest.mark.parametrize("column", ["date", "taken"])
def test_a_column_of_dates_comes_before_what_files_say(tmp_path, model, store, column):
    picture_folder(tmp_path / "photos", 2)
    table = tmp_path / "photos" / "items.csv"
    for header, date in (("other", "-"), (column, "2001-02-03")):
        table.write_text(f"id,image,{header},width\na,0.png,{date},7\n")
        encode_into(store, model, Source.read(table))
        metadata = store.get(["a"])[0].metadata
        assert (date_of(metadata) == "2001-02-03") == (header == column)
        assert metadata["width"] == 7


def test_a_file_that_is_replaced_before_it_is_read_is_read_again_the_next_time(
    tmp_path, model, store, monkeypatch
):
    folder, new = picture_folder(tmp_path / "photos", 3), tmp_path / "new.png"
    Image.new("RGB", (40, 30), "white").save(new)
    file_state = encode.file_state

    def replaced(path):
        state = file_state(path)
        if path.name == "0.png" and new.exists():
            new.rename(path)
        return state

    monkeypatch.setattr(encode, "file_state", replaced)
    assert encode_into(store, model, Source.read(folder)).added == 3
    done = encode_into(store, model, Source.read(folder))
    assert (done.replaced, done.unchanged, done.problems) == (1, 2, ())
    np.testing.assert_array_equal(
        store.get(["0.png"])[0].codes["image"], model.encode_images([folder / "0.png"])[0]
    )


def test_a_file_that_is_being_written_is_one_line_and_tried_again(
    tmp_path, model, store, monkeypatch
):
    folder = picture_folder(tmp_path / "photos", 3)
    file, content = folder / "0.png", (folder / "0.png").read_bytes()
    file.write_bytes(content[: len(content) // 2])

    def written_by_now(path):
        file.write_bytes(content)
        return image_problem(path)

    monkeypatch.setattr(encode, "image_problem", written_by_now)
    done = encode_into(store, model, Source.read(folder))
    assert (done.added, done.problems) == (
        2,
        (f"{file}: changed while it was read; index it again",),
    )
    assert encode_into(store, model, Source.read(folder)).added == 1


def test_what_other_programs_keep_beside_photographs_is_left_out(tmp_path, model, store):
    folder = picture_folder(tmp_path / "photos", 2)
    for name in (
        "@eaDir/0.png/SYNOFILE_THUMB_M.png",
        "deep/#recycle/a.png",
        "$RECYCLE.BIN/b.png",
        "Catalog Previews.lrdata/c.png",
        "__MACOSX/d.png",
        "My.photoslibrary/resources/derivatives/e.png",
        "Old.photolibrary/Thumbnails/f.png",
        ".Trash-1000/g.png",
        "._0.png",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((folder / "0.png").read_bytes())
    (folder / "My.photoslibrary" / "originals").mkdir()
    (folder / "0.png").rename(folder / "My.photoslibrary" / "originals" / "0.png")
    done = encode_into(store, model, Source.read(folder))
    assert store.ids() == ["My.photoslibrary/originals/0.png", "deep/er/1.png"]
    assert done.skipped == {"hidden": 2, _OF_OTHERS: 7}


def test_what_cannot_be_opened_is_named_and_the_rest_indexed(tmp_path, model, store):
    folder = picture_folder(tmp_path / "photos", 2)
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "lost.png").symlink_to("gone.png")
    (folder / "around").symlink_to(folder)
    os.mkfifo(folder / "pipe.png")
    (folder / "\udcff.png").write_bytes(b"")
    done = encode_into(store, model, Source.read(folder))
    assert done.items == 2
    says = ["loop.png: cannot be read", "lost.png: is a link to nothing", "pipe.png: is a pipe"]
    says.append("\ufffd.png: the name is not UTF-8; rename it")
    found = [
        line.startswith(f"{folder}/{start}")
        for line, start in zip(done.problems, says, strict=True)
    ]
    assert found == [True] * 4


def test_items_of_a_folder_that_cannot_be_read_stay(
    tmp_path, model, store, monkeypatch, no_encoding
):
    folder = picture_folder(tmp_path / "photos", 3)
    encode_into(store, model, Source.read(folder))
    list_folder = os.scandir

    def forbidden(path):
        if path.name == "deep":
            raise PermissionError(13, "Permission denied")
        return list_folder(path)

    with monkeypatch.context() as patch, no_encoding():
        patch.setattr(os, "scandir", forbidden)
        done = encode_into(store, model, Source.read(folder), prune=True)
        check_refusal("deep: cannot be read", Source.read, folder / "deep")
    assert (done.items, done.pruned, done.moved) == (3, 0, 0)
    assert done.problems == (f"{folder}/deep: cannot be read (Permission denied)",)


def test_an_edit_that_keeps_size_and_time_is_seen_and_a_new_mode_is_not_encoded(
    tmp_path, model, store, no_encoding
):
    folder = picture_folder(tmp_path / "photos", 2)
    for file, colour in ((folder / "0.bmp", "red"), (tmp_path / "new.bmp", "lime")):
        Image.new("RGB", (40, 30), colour).save(file)
    encode_into(store, model, Source.read(folder))
    (folder / "deep" / "er" / "1.png").chmod(0o600)
    with no_encoding():
        assert encode_into(store, model, Source.read(folder)).unchanged == 3
    file, before = folder / "0.bmp", (folder / "0.bmp").stat()
    content = (tmp_path / "new.bmp").read_bytes()
    assert len(content) == before.st_size
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert encode_into(store, model, Source.read(folder)).replaced == 1


@pytest.mark.parametrize("seconds", [0, -11_644_473_600])
def test_a_file_of_an_impossible_time_has_no_date(tmp_path, model, store, seconds):
    folder = picture_folder(tmp_path / "photos", 1)
    os.utime(folder / "0.png", (seconds, seconds))
    assert encode_into(store, model, Source.read(folder)).added == 1
    assert "date" not in store.get(["0.png"])[0].metadata
    assert encode_into(store, model, Source.read(folder)).unchanged == 1


def test_a_name_is_the_same_in_both_forms_of_unicode(tmp_path, model, store, no_encoding):
    folder, captions = tmp_path / "photos", tmp_path / "c.csv"
    picture_folder(folder, 1)
    composed, decomposed = "caf\u00e9.png", "cafe\u0301.png"
    (folder / "0.png").rename(folder / decomposed)
    captions.write_text(f"image,caption\n{composed},blue\n")
    done = encode_into(store, model, Source.read(folder, captions=captions))
    assert (done.problems, store.ids()) == ((), [composed])
    (folder / decomposed).rename(folder / composed)
    with no_encoding():
        assert encode_into(store, model, Source.read(folder), prune=True).items == 1
    assert query_like(store, decomposed).code is not None
    Image.new("RGB", (40, 30), "white").save(folder / decomposed)
    assert Source.read(folder).records.ids == (decomposed, composed)


@pytest.mark.parametrize(("pattern", "paths", "others"), [
    ("/a", ["a"], ["b/a", "a/b"]),
    ("[ab].gif", ["a.gif", "x/b.gif"], ["ab.gif", "c.gif"]),
    ("[!a].gif", ["b.gif"], ["a.gif"]),
    ("raw/*", ["raw/a"], ["raw/a/b", "x/raw/a"]),
    ("raw/**", ["raw/a", "raw/a/b"], ["raw", "x/raw/a"]),
    ("**/a", ["a", "b/a", "b/c/a"], ["b/aa"]),
    ("a+(b)", ["a+(b)"], ["aab"]),
])  # fmt: skip
def test_a_pattern_matches_names_at_any_depth_or_paths_from_the_top(pattern, paths, others):
    matches = Exclusions([pattern]).match
    assert [path for path in (*paths, *others) if matches(path, False)] == paths


SPELLINGS = {
    "from the top": lambda root, name, link: f"/{name}",
    "in the folder": lambda root, name, link: name,
    "a folder": lambda root, name, link: f"{name}/",
    "from here": lambda root, name, link: os.path.relpath(root / name),
    "with a point": lambda root, name, link: f"./{name}",
    "absolute": lambda root, name, link: str(root / name),
    "round about": lambda root, name, link: f"{root}/deep/../{name}",
    "from the home": lambda root, name, link: f"~/photos/{name}",
    "through a link to the folder above": lambda root, name, link: str(link / name),
    "a link to it": lambda root, name, link: str(root.parent / "there"),
    "a link in the folder": lambda root, name, link: "around",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", ["Private", "gr\u00fcn", "gru\u0308n", "Trip [2019] *", "a/b"])
def test_a_folder_is_left_out_however_its_path_is_written(tmp_path, monkeypatch, spelling, name):
    root, link = picture_folder(tmp_path / "photos", 4), tmp_path / "link"
    (root / name).mkdir(parents=True)
    (root / "0.png").rename(root / name / "0.png")
    link.symlink_to(root)
    (root / "around").symlink_to(root / name)
    (tmp_path / "there").symlink_to(root / name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for here in (tmp_path, root, root / "deep", Path("/")):
        monkeypatch.chdir(here)
        for form in ("NFC", "NFD"):
            pattern = unicodedata.normalize(form, SPELLINGS[spelling](root, name, link))
            for folder in (root, link):
                source = Source.read(folder, exclude=[pattern])
                assert source.records.ids == ("2.png", "deep/er/1.png", "deep/er/3.png")
                assert source.unmatched == ()
                again = Source.read(folder, exclude=source.photos.exclude)
                assert again.records.ids == source.records.ids


@pytest.mark.parametrize(
    "pattern",
    ["Privat", "./Privat", "{0}/Privat/", "/Private/x", "*.gif", "~/photos/Privat", "linked"],
)
def test_an_exclusion_that_leaves_nothing_out_is_a_line(tmp_path, monkeypatch, pattern):
    root = picture_folder(tmp_path / "photos", 2)
    (root / "linked").symlink_to(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    typed = pattern.format(root)
    items = read_again(Address.parse(tmp_path / "s"), root, exclude=["deep", typed])
    assert items.records.ids == ("0.png",)
    (line,) = items.records.problems
    assert line == (
        f"nothing by exclude {typed!r}: {root} has no such file or folder; give a path in it, "
        "or a pattern such as '*.gif'"
    )
    check_refusal("put it in", Source.read, root, exclude="deep")


def test_what_is_left_out_now_is_no_answer_any_more_and_what_is_gone_stays(tmp_path, model, store):
    folder = picture_folder(tmp_path / "photos", 5)
    encode_into(store, model, Source.read(folder))
    (folder / "0.png").unlink()
    done = encode_into(store, model, Source.read(folder, exclude=[str(folder / "deep")]))
    assert (done.pruned, store.ids()) == (2, ["0.png", "2.png", "4.png"])
