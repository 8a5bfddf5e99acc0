"""Reading large inputs in shards."""

import uuid
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from channelhash.data.bulk import KINDS, batches, input_files
from channelhash.data.bulk.batches import RawBatch, fetch
from channelhash.errors import InputError, JobError
from channelhash.utils.addresses import folder_of, list_files
from picture_runs import write_pictures
from scale.made_inputs import WIDTHS, N, feature_rows, picture_items, write_feature_parquet, write_tar


def shards_of(address: str | Path, tmp_path: Path, shard_items: int, modalities=("image", "text")) -> list:
    kind = KINDS[next(input_files(str(address)))[0]]
    files = [file for _, file in input_files(str(address))]
    return list(kind.plan(files, modalities, shard_items, tmp_path / "listing.parquet"))


def read(address: str | Path, tmp_path: Path, shard_items: int = 16, modalities=("image", "text")) -> list[RawBatch]:
    kind = KINDS[next(input_files(str(address)))[0]]
    return [
        batch
        for planned in shards_of(address, tmp_path, shard_items, modalities)
        for batch in kind.read(planned.shard, folder_of(str(address)), modalities)
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
    assert [Path(file.address).name for file in list_files(f"{folder}/b/*.png")] == ["10.png", "2.png"]
    assert folder_of(f"{folder}/b/*.png") == f"{folder}/b"
    before = list(list_files(str(folder)))
    (folder / "c.png").write_bytes(b"other")
    assert [file == old for file, old in zip(list_files(str(folder)), before, strict=True)] == [True] * 4 + [False]


def test_a_folder_of_pictures_is_cut_into_shards_of_so_many(tmp_path):
    write_pictures(tmp_path / "in", 10)
    images = tmp_path / "in" / "images"
    (images / "3.png").write_bytes(b"")
    (images / "notes.txt").write_text("no picture")
    assert [planned.shard.items for planned in shards_of(images, tmp_path, 4, ("image",))] == [4, 4, 2]
    batches = read(images, tmp_path, 4, ("image",))
    assert [batch.ids for batch in batches] == [["0.png", "1.png", "2.png"], ["4.png", "5.png", "6.png", "7.png"],
                                                ["8.png", "9.png"]]  # fmt: skip
    assert batches[0].bad == [("3.png", f"empty picture {images / '3.png'}")]
    assert batches[1].items["image"][0] == (images / "4.png").read_bytes()
    assert batches[1].image_addresses[0] == str(images / "4.png")


def test_features_in_parquet_are_read_in_whole_row_groups(tmp_path):
    path = write_feature_parquet(tmp_path / "features.parquet", row_group=8)
    planned = shards_of(path, tmp_path, 10)
    assert [(p.shard.first, p.shard.last, p.shard.items) for p in planned] == [(0, 2, 16), (2, 4, 16), (4, 5, 8)]
    assert all(part.labels == {"even", "all"} for part in planned)
    batches = read(path, tmp_path, 10)
    assert [name for batch in batches for name in batch.ids] == [f"item{i:03d}" for i in range(N)]
    for name, rows in feature_rows().items():
        np.testing.assert_array_equal(np.concatenate([batch.items[name] for batch in batches]), rows)
    assert batches[0].labels[:2] == [["even", "all"], ["all"]]


def test_bad_rows_of_parquet_are_named_with_the_reason(tmp_path):
    rows = [row.tolist() for row in feature_rows(7)["image"]]
    rows[1], rows[2], rows[3], rows[5] = None, [1.0], [float("nan")] * 6, [None] * 6
    ids = ["a", "b", "c", "d", None, "f", "g"]
    table = pa.table({"id": ids, "image": rows, "text": ["t", "t", "t", "t", "t", "t", " "], "labels": ["x; y"] * 7})
    pq.write_table(table, tmp_path / "t.parquet")
    (batch,) = read(tmp_path / "t.parquet", tmp_path)
    assert batch.ids == ["a"]
    assert batch.labels == [["x", "y"]]
    assert batch.items["image"].shape == (1, WIDTHS["image"])
    assert batch.bad == [
        ("b", "0 image features, most rows have 6"),
        ("c", "1 image features, most rows have 6"),
        ("d", "image features are not finite"),
        (f"{tmp_path / 't.parquet'}, row 5", "has no id"),
        ("f", "image features are not finite"),
        ("g", "the text is empty"),
    ]


@pytest.mark.parametrize("form", ["paths", "bytes", "structs"])
def test_pictures_in_parquet_are_paths_or_bytes(tmp_path, form):
    write_pictures(tmp_path, 4)
    names = [f"images/{i}.png" for i in range(4)]
    contents = [(tmp_path / name).read_bytes() for name in names]
    structs = [{"bytes": content, "path": name} for content, name in zip(contents, names, strict=True)]
    columns = {"paths": [*names, "images/none.png"], "bytes": [*contents, None], "structs": [*structs, None]}
    pq.write_table(pa.table({"id": list("abcde"), "image": columns[form]}), tmp_path / "t.parquet")
    (batch,) = read(tmp_path / "t.parquet", tmp_path, modalities=("image",))
    assert batch.items["image"] == contents
    assert batch.image_addresses == ([str(tmp_path / name) for name in names] if form == "paths" else None)
    assert [bad.item for bad in batch.bad] == ["e"]
    assert ("no such picture" in batch.bad[0].reason) == (form == "paths")


def test_webdataset_shards_are_read_item_by_item(tmp_path):
    items = picture_items(write_pictures(tmp_path / "in", 6))
    items["item001"].pop("txt")
    items["item002"]["json"] = b"{"
    items["item003"] = {"png": items["item003"]["png"], "json": b'{"caption": "a caption"}', "cls": b"7"}
    tars = tmp_path / "tars"
    write_tar(tars / "1.tar", dict(list(items.items())[4:]))
    write_tar(tars / "0.tar", dict(list(items.items())[:4]))
    planned = shards_of(tars, tmp_path, 1)
    assert [(Path(p.shard.file).name, p.shard.items) for p in planned] == [("0.tar", 4), ("1.tar", 2)]
    assert [part.labels for part in planned] == [{"red", "green", "7"}, {"green", "blue"}]
    first, second = read(tars, tmp_path)
    assert first.ids == ["item000", "item003"]
    assert first.items["text"][1] == "a caption"
    assert first.labels == [["red"], ["7"]]
    assert first.items["image"][0] == items["item000"]["png"]
    assert [bad.item for bad in first.bad] == ["item001", "item002"]
    assert first.bad[0].reason == f"no text in {tars / '0.tar'}"
    assert "JSON cannot be read" in first.bad[1].reason
    assert second.ids == ["item004", "item005"]


def test_an_address_is_read_as_its_files_would_be(tmp_path):
    write_tar(tmp_path / "tars" / "0.tar", picture_items(write_pictures(tmp_path / "in", 5)))
    write_feature_parquet(tmp_path / "tables" / "f.parquet")
    for folder in ("tars", "tables"):
        for here, there in zip(
            read(tmp_path / folder, tmp_path), read(in_memory(tmp_path / folder), tmp_path), strict=True
        ):
            assert (here.ids, here.labels, here.bad) == (there.ids, there.labels, there.bad)
            for name, values in here.items.items():
                np.testing.assert_array_equal(values, there.items[name])


def test_what_is_no_input_is_refused(tmp_path):
    (tmp_path / "mixed").mkdir()
    (tmp_path / "empty").mkdir()
    write_feature_parquet(tmp_path / "mixed" / "a.parquet")
    (tmp_path / "mixed" / "b.png").write_bytes(b"x")
    whole = write_tar(tmp_path / "whole.tar", {"a": {"png": b"x" * 20_000}, "b": {"png": b"x" * 20_000}}).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:25_000])
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "mixed" / "a.parquet").read_bytes()[:-30])
    pq.write_table(pa.table({"id": ["a"], "picture": ["p"]}), tmp_path / "other.parquet")
    for address, says in (
        ("none", "no such file or folder"),
        ("empty", "no files to encode; they end in .parquet, .tar, "),
        ("mixed", "name one kind, such as "),
        ("cut.tar", "not a readable tar file, perhaps truncated"),
        ("cut.parquet", "not a readable Parquet file, perhaps truncated"),
        ("other.parquet", "has no column 'image'"),
    ):
        with pytest.raises(InputError, match=says):
            read(tmp_path / address, tmp_path)
    with pytest.raises(InputError, match="cannot be opened"):
        list(list_files("nosuch://bucket"))


def test_a_parquet_file_needs_a_column_of_each_modality(tmp_path):
    path = tmp_path / "items.parquet"
    pq.write_table(pa.table({"id": ["a"], "sound": ["a.wav"]}), path)
    with pytest.raises(InputError, match="no column 'image' and no column 'text', its columns are id, sound"):
        KINDS["parquet"].modalities(str(path))


def test_a_disk_that_fails_ends_the_job_but_a_missing_image_does_not(tmp_path, monkeypatch):
    def fail(address: str) -> bytes:
        raise OSError("the network is down")

    assert fetch([str(tmp_path / "lost.png")]) == [f"no such picture {tmp_path / 'lost.png'}"]
    monkeypatch.setattr(batches, "read_bytes", fail)
    with pytest.raises(JobError, match=r"a\.png: cannot be read now \(the network is down\); the same command goes on"):
        fetch(["a.png"])


@pytest.mark.parametrize(
    ("failure", "kind", "says"),
    [
        (
            PermissionError("Forbidden"),
            InputError,
            r"memory://none/a\.jpg: no access \(Forbidden\); check the credentials",
        ),
        (
            TimeoutError("no answer"),
            JobError,
            r"memory://none/a\.jpg: the server failed \(no answer\); run the same command",
        ),
    ],
)
def test_an_object_store_that_refuses_or_fails_ends_the_job_and_makes_no_item_bad(monkeypatch, failure, kind, says):
    def fail(*arguments, **options):
        raise failure

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "cat_file", fail)
    with pytest.raises(kind, match=says):
        fetch(["memory://none/a.jpg"])
