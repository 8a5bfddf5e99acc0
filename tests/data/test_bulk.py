"""Reading large inputs in shards."""

import gzip
import json
import tarfile
import uuid
from pathlib import Path
from unittest.mock import Mock

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bulk.made_inputs import (
    WIDTHS,
    N,
    feature_rows,
    picture_items,
    write_feature_parquet,
    write_members,
    write_tar,
)
from channelhash.data import bulk
from channelhash.data.bulk import KINDS, ReadingOptions, _fetch, input_files
from channelhash.data.records import Records
from channelhash.errors import InputError, JobError
from channelhash.utils.addresses import folder_of, list_files
from picture_runs import write_pictures
from refusals import check_refusal


def shards_of(
    address: str | Path, tmp_path: Path, shard_items: int, modalities=("image", "text")
) -> list:
    kind = KINDS[next(input_files(str(address)))[0]]
    files = [file for _, file in input_files(str(address))]
    return list(kind.plan(files, modalities, shard_items, tmp_path / "listing.parquet"))


Batch = tuple[Records, list[tuple[str, str]]]


def read(
    address: str | Path, tmp_path: Path, shard_items: int = 16, modalities=("image", "text")
) -> list[Batch]:
    kind = KINDS[next(input_files(str(address)))[0]]
    planned = shards_of(address, tmp_path, shard_items, modalities)
    known = sorted({name for _, names in planned for name in names})
    job = ReadingOptions(folder_of(str(address)), modalities, known, {})
    return [batch for shard, _ in planned for batch in kind.read(shard, job)]


def labels_of(records: Records) -> list[set[str]]:
    return [
        {name for name, has in zip(records.label_names, row, strict=True) if has}
        for row in records.labels
    ]


def in_memory(folder: Path) -> str:
    """The files of a folder at an address that is no path."""
    address = f"memory://{uuid.uuid4().hex}"
    fsspec.filesystem("memory").put(str(folder), address, recursive=True)
    return address


def test_files_are_listed_in_one_order_at_every_kind_of_address(tmp_path):
    folder = tmp_path / "files"
    for name in ("b/2.png", "a.png", "b/10.png", "c.png", "b/z/1.png", "b/._2.png", ".trash/3.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    wanted = ["a.png", "b/10.png", "b/2.png", "b/z/1.png", "c.png"]
    for address in (str(folder), f"file://{folder}", in_memory(folder)):
        files = list(list_files(address))
        root = folder_of(address)
        assert [file.address.removeprefix(f"{root}/") for file in files] == wanted
        assert [file.size for file in files] == [len(name) for name in wanted]
    (folder / "d.png").symlink_to(folder / "b" / "2.png")
    (folder / "e").symlink_to(folder / "b", target_is_directory=True)
    for address in (folder, f"{folder}/**/*.png"):
        found = [
            Path(file.address).relative_to(folder).as_posix() for file in list_files(str(address))
        ]
        assert found == [*wanted, "d.png"]
    (folder / "d.png").unlink()
    assert [Path(file.address).name for file in list_files(f"{folder}/b/*.png")] == [
        "10.png",
        "2.png",
    ]
    assert folder_of(f"{folder}/b/*.png") == f"{folder}/b"
    before = list(list_files(str(folder)))
    (folder / "c.png").write_bytes(b"other")
    *others, changed = list_files(str(folder))
    assert others == before[:-1]
    assert changed != before[-1]


def test_features_in_parquet_are_read_in_whole_row_groups(tmp_path):
    path = write_feature_parquet(tmp_path / "features.parquet", row_group=8)
    planned = shards_of(path, tmp_path, 10)
    assert [(shard.first, shard.last, shard.items) for shard, _ in planned] == [
        (0, 2, 16),
        (2, 4, 16),
        (4, 5, 8),
    ]
    assert all(labels == {"even", "all"} for _, labels in planned)
    ids = [name for records, _ in read(path, tmp_path, 10) for name in records.ids]
    assert ids == [f"item{i:03d}" for i in range(N)]


def test_bad_rows_of_parquet_are_named_with_the_reason(tmp_path):
    rows = [row.tolist() for row in feature_rows(7)["image"]]
    rows[1], rows[2], rows[3], rows[5] = None, [1.0], [float("nan")] * 6, [None] * 6
    ids = ["a", "b", "c", "d", None, "f", "g"]
    columns = {"id": ids, "image": rows, "text": [*"tttttt "], "labels": ["x; y"] * 7}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    ((records, bad),) = read(tmp_path / "t.parquet", tmp_path)
    assert records.ids == ("a",)
    assert labels_of(records) == [{"x", "y"}]
    assert records.items["image"].shape == (1, WIDTHS["image"])
    assert bad == [
        ("b", "image has 0 numbers, others have 6"),
        ("c", "image has 1 numbers, others have 6"),
        ("d", "image features are not finite"),
        (f"{tmp_path / 't.parquet'}, row 5", "has no id"),
        ("f", "image features are not finite"),
        ("g", "the text is empty"),
    ]


@pytest.mark.parametrize(
    "form", ["paths", "category", "view", "path bytes", "bytes", "structs", "both"]
)
def test_pictures_in_parquet_are_paths_or_bytes_of_several_types(tmp_path, form):
    write_pictures(tmp_path, 4)
    names = [f"images/{i}.png" for i in range(4)]
    contents = [(tmp_path / name).read_bytes() for name in names]
    structs = [
        {"bytes": content, "path": name} for content, name in zip(contents, names, strict=True)
    ]
    column = {
        "paths": [*names, "images/none.png"],
        "category": pa.array([*names, None]).dictionary_encode(),
        "view": pa.array([*names, None], pa.string_view()),
        "path bytes": [*map(str.encode, names), None],
        "bytes": [*contents, None],
        "structs": [*structs, None],
        "both": [*structs[:2], *({"bytes": None, "path": name} for name in names[2:]), None],
    }[form]
    labels = pa.array(["a", None, "b", "b", "b"]).dictionary_encode()
    ids = pa.array([*"abcde"], pa.string_view())
    pq.write_table(pa.table({"id": ids, "image": column, "labels": labels}), tmp_path / "t.parquet")
    ((records, bad),) = read(tmp_path / "t.parquet", tmp_path, modalities=("image",))
    assert records.ids == (*"abcd",)
    assert labels_of(records) == [{"a"}, set(), {"b"}, {"b"}]
    assert records.items["image"] == tuple(contents)
    paths = tuple(str(tmp_path / name) for name in names)
    shown = {"bytes": None, "structs": None, "both": ("", "", *paths[2:])}.get(form, paths)
    assert records.display.get("image") == shown
    reason = f"no such picture {tmp_path / 'images/none.png'}" if form == "paths" else "no picture"
    assert bad == [("e", reason)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float64()),
        pa.large_list(pa.float16()),
        pa.list_view(pa.float32()),
        pa.list_(pa.int8()),
        pa.list_(pa.decimal128(20, 1)),
    ],
    ids=str,
)
def test_features_are_lists_of_any_numbers_and_layout(tmp_path, kind):
    rows = pa.array([[1, 2], None, [3, 4], None], pa.list_(pa.int64())).cast(
        pa.list_(kind.value_type)
    )
    column = pa.array(rows.to_pylist(), kind)
    pq.write_table(pa.table({"id": list("abcd"), "text": column}), tmp_path / "t.parquet")
    ((records, bad),) = read(tmp_path / "t.parquet", tmp_path, modalities=("text",))
    assert records.items["text"].tolist() == [[1, 2], [3, 4]]
    assert bad == [(name, "text has 0 numbers, others have 2") for name in "bd"]


def test_one_cell_costs_its_row_of_parquet(tmp_path):
    table = {
        "id": list("abcd"),
        "text": ["x", "y\0", "z", None],
        "labels": pa.array([[1.0], None, [float("nan")], []]),
    }
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    ((_, labels),) = shards_of(tmp_path / "t.parquet", tmp_path, 9, ("text",))
    assert labels == {"1"}
    ((records, bad),) = read(tmp_path / "t.parquet", tmp_path, modalities=("text",))
    assert records.ids == ("a", "c")
    assert labels_of(records) == [{"1"}, set()]
    assert bad == [("b", "the text holds a NUL; take it out"), ("d", "the text is empty")]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("id", pa.array([b"a"])),
        ("id", pa.array([["a"]])),
        ("text", pa.array([b"a"]).dictionary_encode()),
        ("text", pa.array([[["a"]]])),
        ("text", pa.array([{"a": 1}])),
        ("image", pa.array([{"a": 1}])),
        ("image", pa.array([["a.png"]])),
        ("labels", pa.array([[b"a"]])),
        ("labels", pa.array([{"a": 1}])),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_refused_with_its_type(tmp_path, name, column):
    columns = {"id": ["a"], "text": ["x"], "image": ["a.png"], "labels": ["y"], name: column}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    says = rf"t\.parquet: the column '{name}' holds .*<.*>|holds binary; expected"
    check_refusal(says, shards_of, tmp_path / "t.parquet", tmp_path, 9)


def test_links_in_tar_files_are_followed_and_hidden_files_left_out(tmp_path):
    link, symbolic = tarfile.LNKTYPE, tarfile.SYMTYPE
    members = {
        "a.png": b"A",
        "b.png": (link, "a.png"),
        "c.png": (symbolic, "a.png"),
        "d.png": (symbolic, "none"),
        "e": (tarfile.DIRTYPE, ""),
        "f.png": (tarfile.CHRTYPE, ""),
        "g.png": (symbolic, "g.png"),
    }
    write_members(tmp_path / "x.tar", members)
    ((records, bad),) = read(tmp_path / "x.tar", tmp_path, modalities=("image",))
    assert records.ids == ("a", "b", "c")
    assert records.items["image"] == [b"A"] * 3
    assert [name for name, _ in bad] == ["d", "g"]
    names = (
        "./._0.png",
        "./0.png",
        ".DS_Store",
        "__MACOSX/._0.png",
        "a/.b/1.png",
        "a/2.png",
        200 * "n" + "é.png",
    )
    write_members(tmp_path / "x.tar", dict.fromkeys(names, b"A"))
    ((records, bad),) = read(tmp_path / "x.tar", tmp_path, modalities=("image",))
    assert records.ids == ("0", "a/2", 200 * "n" + "é")
    assert bad == []
    assert KINDS["tar"].modalities(str(tmp_path / "x.tar")) == ("image",)


def test_a_name_with_dots_and_a_compressed_tar_file_are_named(tmp_path):
    write_members(tmp_path / "x.tar", {"IMG_2020.01.02.png": b"A", "IMG_2020.03.04.png": b"B"})
    modalities = KINDS["tar"].modalities
    says = r"no item with an image .* first dot: IMG_2020\.01\.02\.png is \.01\.02\.png"
    check_refusal(says, modalities, str(tmp_path / "x.tar"))
    ((_, bad),) = read(tmp_path / "x.tar", tmp_path, modalities=("image",))
    assert bad[0][1].startswith("no image (a name ends at its first dot: IMG_2020.01.02.png is ")
    (tmp_path / "z.tar").write_bytes(gzip.compress((tmp_path / "x.tar").read_bytes()))
    check_refusal(
        "not a readable tar file, perhaps truncated or compressed",
        modalities,
        str(tmp_path / "z.tar"),
    )


@pytest.mark.parametrize("folder", ["shards [2019]", "why?", "{a,b}", "a*b"])
def test_only_the_star_is_special_in_a_pattern(tmp_path, folder):
    inside = [f"{folder}/{name}" for name in ("a.tar", ".b.tar", "deep/c.tar")]
    for name in (*inside, "shards 2/a.tar", "whyy/a.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    patterns = {"*.tar": ["a.tar"], "**/*.tar": ["a.tar", "deep/c.tar"], "d*/c.tar": ["deep/c.tar"]}
    for root in (str(tmp_path), in_memory(tmp_path)):
        for pattern, expected in patterns.items():
            files = [
                file.address.partition(f"/{folder}/")[2]
                for file in list_files(f"{root}/{folder}/{pattern}")
            ]
            assert files == expected


def test_webdataset_shards_are_read_item_by_item(tmp_path):
    items = picture_items(write_pictures(tmp_path / "in", 6))
    items["item001"].pop("txt")
    items["item002"]["json"] = b"{"
    items["item003"] = {
        "png": items["item003"]["png"],
        "json": b'{"caption": "a caption"}',
        "cls": b"7",
    }
    tars = tmp_path / "tars"
    write_tar(tars / "1.tar", dict(list(items.items())[4:]))
    write_tar(tars / "0.tar", dict(list(items.items())[:4]))
    planned = [
        (Path(shard.file).name, shard.items, labels)
        for shard, labels in shards_of(tars, tmp_path, 1)
    ]
    assert planned == [("0.tar", 4, {"red", "green", "7"}), ("1.tar", 2, {"green", "blue"})]
    (first, bad), (second, _) = read(tars, tmp_path)
    assert first.ids == ("item000", "item003")
    assert labels_of(first) == [{"red"}, {"7"}]
    assert first.items["text"][1] == "a caption"
    assert first.items["image"][0] == items["item000"]["png"]
    assert [name for name, _ in bad] == ["item001", "item002"]
    assert bad[0][1] == f"no text in {tars / '0.tar'}"
    assert "JSON cannot be read" in bad[1][1]
    assert second.ids == ("item004", "item005")


MARKS = {"utf-8-sig": "utf-8-sig", "utf-16": "utf-16", "twice": "utf-8-sig"}


@pytest.mark.parametrize("encoding", MARKS)
@pytest.mark.parametrize("where", ["txt", "json", "field"])
def test_a_text_that_begins_with_a_byte_order_mark_is_its_words(tmp_path, where, encoding):
    mark = "\ufeff" if encoding == "twice" else ""
    fields = {"labels": ["dog"]} | ({} if where == "txt" else {"caption": f"{mark}a moose — élan"})
    members = {"cls": f"{mark}red".encode(MARKS[encoding])} if where == "txt" else {}
    if where == "txt":
        members["txt"] = f"{mark}a moose — élan\r\n".encode(MARKS[encoding])
    of_json = "utf-8" if where == "field" else MARKS[encoding]
    members["json"] = (mark * (where == "json") + json.dumps(fields)).encode(of_json)
    write_tar(tmp_path / "a.tar", {"0": members})
    ((records, bad),) = read(tmp_path / "a.tar", tmp_path, modalities=("text",))
    assert bad == []
    assert records.items["text"] == ["a moose — élan"]
    assert labels_of(records) == [{"red" if where == "txt" else "dog"}]


def test_a_list_of_texts_is_one_text(tmp_path):
    table = pa.table({"id": ["a", "b", "c"], "text": [["a dog", "it runs"], ["the sea"], []]})
    pq.write_table(table, tmp_path / "t.parquet")
    ((records, bad),) = read(tmp_path / "t.parquet", tmp_path, modalities=("text",))
    assert records.items["text"] == ("a dog\nit runs", "the sea")
    assert bad == [("c", "the text is empty")]


def test_an_address_is_read_as_its_files_would_be(tmp_path):
    write_tar(tmp_path / "tars" / "0.tar", picture_items(write_pictures(tmp_path / "in", 5)))
    write_feature_parquet(tmp_path / "tables" / "f.parquet")
    for folder in ("tars", "tables"):
        both = (
            read(address, tmp_path) for address in (tmp_path / folder, in_memory(tmp_path / folder))
        )
        for (here, bad), (there, bad_there) in zip(*both, strict=True):
            assert here.content_hash() == there.content_hash()
            assert bad == bad_there
            np.testing.assert_equal(here.items, there.items)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("none", "no such folder or file"),
        ("mixed/**.png", r"mixed/\*\*\.png: Invalid pattern: '\*\*' can only be an entire path"),
        ("empty", "no files to encode; they end in .parquet, .tar, "),
        ("mixed", "name one kind, as by "),
        ("cut.tar", "not a readable tar file, perhaps truncated"),
        ("cut.parquet", "not a readable Parquet file, perhaps truncated"),
        ("other.parquet", "has no column 'image'"),
    ],
)
def test_what_is_no_input_is_refused(tmp_path, address, says):
    (tmp_path / "mixed").mkdir()
    (tmp_path / "empty").mkdir()
    write_feature_parquet(tmp_path / "mixed" / "a.parquet")
    (tmp_path / "mixed" / "b.png").write_bytes(b"x")
    items = {name: {"png": b"x" * 20_000} for name in "ab"}
    whole = write_tar(tmp_path / "whole.tar", items).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:25_000])
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "mixed" / "a.parquet").read_bytes()[:-30])
    pq.write_table(pa.table({"id": ["a"], "picture": ["p"]}), tmp_path / "other.parquet")
    check_refusal(says, read, tmp_path / address, tmp_path)


def test_an_unknown_scheme_is_refused():
    check_refusal("cannot be opened", list, list_files("nosuch://bucket"))


def test_a_disk_that_fails_ends_the_job_but_a_missing_image_does_not(tmp_path, monkeypatch):
    assert _fetch([str(tmp_path / "lost.png")]) == [f"no such picture {tmp_path / 'lost.png'}"]
    monkeypatch.setattr(bulk, "read_bytes", Mock(side_effect=OSError("the network is down")))
    says = r"a\.png: cannot be read now \(the network is down\); the same command goes on"
    check_refusal(says, _fetch, ["a.png"], error=JobError)


@pytest.mark.parametrize(("failure", "kind", "says"), [
    (PermissionError("Forbidden"), InputError,
     r"memory://none/a\.jpg: no access \(Forbidden\); check the credentials"),
    (TimeoutError("no answer"), JobError,
     r"memory://none/a\.jpg: the server failed \(no answer\); run the command again"),
])  # fmt: skip
def test_an_object_store_that_refuses_or_fails_ends_the_job_and_makes_no_item_bad(
    monkeypatch, failure, kind, says
):
    monkeypatch.setattr(
        fsspec.get_filesystem_class("memory"), "cat_file", Mock(side_effect=failure)
    )
    check_refusal(says, _fetch, ["memory://none/a.jpg"], error=kind)
