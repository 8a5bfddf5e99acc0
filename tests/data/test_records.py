"""Records refuse columns that do not fit, and their readers name what is wrong."""

import tarfile

import numpy as np
import pytest
from PIL import Image

from channelhash.data.bulk import tar
from channelhash.data.bulk.batches import RawBatch
from channelhash.data.collection import DataSource, readable
from channelhash.data.folder import first_images, load_any, load_folder
from channelhash.data.images import load_pixels
from channelhash.data.records import Problems, Records, labels_from_names
from channelhash.errors import InputError
from channelhash.training.feature_inputs import collection_hash
from channelhash.utils.image_files import ImageError

LABELS = np.ones((2, 1), dtype=bool)


def test_columns_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"labels are \(2, 1\), expected \(1, 1\)"):
        Records(("a",), {}, LABELS, ("label",))
    with pytest.raises(ValueError, match="1 text values for 2 ids"):
        Records(("a", "b"), {"text": ("a dog",)}, LABELS, ("label",))
    with pytest.raises(ValueError, match="1 image values for 2 ids"):
        Records(("a", "b"), {}, LABELS, ("label",), display={"image": ("a.jpg",)})


def test_an_unknown_label_names_its_row():
    with pytest.raises(InputError, match=r"t\.csv: row 2 has the unknown label 'cat'; known labels are dog, sea"):
        labels_from_names([["dog"], ["cat"]], ["dog", "sea"], "t.csv")


def test_a_problem_raises_unless_bad_entries_are_skipped():
    with pytest.raises(InputError, match="line 3: no id; mend it"):
        Problems(skip_bad=False).add("line 3: no id", "mend it", "no id")


def test_folders_without_usable_images_are_refused(tmp_path):
    for read in (load_folder, lambda root: first_images(root, 3)):
        with pytest.raises(InputError, match="no pictures in this folder"):
            read(tmp_path)
    (tmp_path / "a.jpg").write_bytes(b"not a JPEG")
    with pytest.raises(InputError, match=r"unreadable picture .*a\.jpg .*--skip-bad"):
        load_folder(tmp_path)
    with pytest.raises(InputError, match="no such folder or file"):
        load_any(tmp_path / "lost")


def test_images_that_cannot_be_decoded_are_left_out_of_every_kind(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (64, 64)).save(tmp_path / f"{name}.jpg")
    (tmp_path / "b.jpg").write_bytes((tmp_path / "b.jpg").read_bytes()[:300])
    (tmp_path / "t.csv").write_text("id,image,text,labels\n1,a.jpg,x,y\n2,b.jpg,x,y\n3,b.jpg,z,y\n4,a.jpg,z,y\n")
    source = DataSource("table", {"path": tmp_path / "t.csv", "skip_bad": True})
    records, again = source.load(), source.load()
    assert (records.ids, records.removed, records.found) == (("1", "4"), {"unreadable picture": 2}, 4)
    assert [line.split(": ")[0] for line in records.problems] == ["id 2", "id 3"]
    assert records.content_hash() == again.content_hash()
    with pytest.raises(InputError, match=r"no picture of 2 rows can be read; the first problem is id 2: unreadable"):
        readable(DataSource("table", {"path": tmp_path / "t.csv"}).load().take([1, 2]))


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(InputError, match=r"lost\.jpg: no such picture"):
        collection_hash((tmp_path / "lost.jpg",), tmp_path)
    with pytest.raises(InputError, match=r"lost\.jpg: no such picture"):
        load_pixels([tmp_path / "lost.jpg"], 8)


def test_bytes_that_are_no_image_cannot_become_records():
    with pytest.raises(ImageError):
        RawBatch(["a"], {"image": [b"not a JPEG"]}, [[]], None, []).records([])


def test_a_tar_file_without_items_is_refused(tmp_path):
    tarfile.open(tmp_path / "empty.tar", "w").close()
    with pytest.raises(InputError, match="holds no item with an image or a text that can be read"):
        tar.modalities(str(tmp_path / "empty.tar"))
