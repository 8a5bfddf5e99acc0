"""A store whose codes are fitted anew."""

import shutil
from contextlib import closing

import numpy as np
import pytest

import channelhash as ch
from channelhash.errors import InputError
from channelhash.indexing import refit
from channelhash.indexing.changes import STATE, content_of
from channelhash.indexing.fit import NewCodes
from channelhash.indexing.refit import refit_store
from channelhash.indexing.source import read_source
from channelhash.indexing.stores import create_store, fit_of
from picture_runs import tiny_clip, write_pictures
from small_runs import assert_refused, run_command, write_features
from small_stores import small_model


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store of 5 images, to whose folder 4 more have come, of which two have a caption; and a copy of it all."""
    folder = tmp_path_factory.mktemp("made")
    photos, net = write_pictures(folder, 9).parent / "images", tiny_clip(folder / "net.json")
    for i in range(5, 9):
        (photos / f"{i}.png").rename(folder / f"{i}.png")
    create_store(str(folder / "s"), NewCodes(f"openclip:{net}", n_bits=16), read_source(photos), stem="english")
    for i in range(5, 9):
        (folder / f"{i}.png").rename(photos / f"{i}.png")
    (folder / "captions.csv").write_text("image,text\n5.png,a red car\n5.png,car\n6.png,a dog\n")
    ch.index(photos, folder / "s", captions=folder / "captions.csv").store.close()
    return folder, shutil.copytree(folder, tmp_path_factory.mktemp("copies") / "made")


@pytest.fixture
def place(made):
    """That store, as it was made and where it was made, for it knows the paths of its images."""
    folder, copy = made
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return folder / "s"


def content(place):
    with closing(ch.open_store(place)) as store:
        items = store.get(store.ids())
        codes = [{name: code.tolist() for name, code in item.codes.items()} for item in items]
        # The state says when the file was last touched, which copying the images does.
        metadata = [{**item.metadata, STATE: content_of(str(item.metadata[STATE]))} for item in items]
        return {item.id: pair for item, *pair in zip(items, codes, metadata, strict=True)}


def test_all_items_are_encoded_anew_and_known_again(place):
    before = content(place)
    assert refit_store(str(place), n_bits=24).items == 9
    after, model = content(place), ch.load_model(place)
    assert {name: metadata for name, (_, metadata) in after.items()} == {n: m for n, (_, m) in before.items()}
    paths = [place.parent / "images" / name for name in after]
    np.testing.assert_array_equal([codes["image"] for codes, _ in after.values()], model.encode_images(paths))
    assert [name for name, (codes, _) in after.items() if "text" in codes] == ["5.png", "6.png"]
    with closing(ch.open_store(place)) as store:
        assert (store.n_bits, store.model, fit_of(store)["fitted"]) == (24, model.fingerprint(), "itq to 9 images")
        assert (store.projected, store.info()["stem"]) == (True, "english")
    assert {path.name for path in place.parent.glob("s*")} == {"s"}, "nothing is left beside"
    assert (place / "source.json").exists()
    again = ch.index(place.parent / "images", place, captions=place.parent / "captions.csv")
    assert again.indexed.unchanged == 9


def test_a_refit_that_was_killed_goes_on(place, monkeypatch):
    before = content(place)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(refit, "_take_its_place", killed)
        with pytest.raises(KeyboardInterrupt):
            refit_store(str(place))
    assert content(place) == before
    with monkeypatch.context() as patch:
        patch.setattr(refit, "fit_source", killed)  # the fit is there already
        patch.setattr(refit, "_exchange", lambda first, second: (exchange(first, second), killed()))
        with pytest.raises(KeyboardInterrupt):
            refit_store(str(place))
    fitted = content(place)
    assert fitted != before
    assert place.with_name("s.refit").exists()
    assert refit_store(str(place)).items == 9
    assert not place.with_name("s.refit").exists()
    assert content(place) == fitted


exchange = refit._exchange


def test_a_file_system_that_cannot_exchange_folders(place, monkeypatch):
    class Library:
        def renameat2(self, *_):
            return -1

    monkeypatch.setattr(refit.ctypes, "CDLL", lambda *_, **__: Library())
    monkeypatch.setattr(refit.ctypes, "get_errno", lambda: refit.errno.EINVAL)
    assert refit_store(str(place), n_bits=8).items == 9
    assert {path.name for path in place.parent.glob("s*")} == {"s"}


def test_what_cannot_be_done_leaves_the_store_as_it_is(place, capsys):
    before, images = content(place), place.parent / "images"
    with closing(ch.open_store(place)), pytest.raises(InputError, match="is open in another process; stop that"):
        refit_store(str(place))
    (images / "3.png").rename(place.parent / "3.png")
    assert_refused(capsys, "index", "refit", place, says="3.png is not there (1 such items); restore the images")
    (images / "3.png").write_text("no picture")
    assert_refused(capsys, "index", "refit", place, "--bits", "9", says="is left as it is: unreadable picture")
    assert content(place) == before
    (images / "3.png").unlink()
    shutil.move(place.parent / "3.png", images / "3.png")
    assert run_command("index", "refit", place, "--json") == 0


def test_codes_that_were_not_fitted_are_refused(tmp_path, capsys):
    model = small_model(tmp_path)
    ch.open_store(tmp_path / "s", 12, model.fingerprint()).close()
    model.save_pretrained(tmp_path / "s" / "model")
    assert_refused(capsys, "index", "refit", tmp_path / "s", says="its codes are those of a run, not fitted")
    ch.index(write_features(tmp_path / "f.npz"), tmp_path / "f", bits=8).store.close()
    assert_refused(capsys, "index", "refit", tmp_path / "f", says="was made of features, which it does not keep")
    assert_refused(capsys, "index", "refit", tmp_path / "none", says="no store in a folder")
