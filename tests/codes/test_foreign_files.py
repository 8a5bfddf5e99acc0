"""Exports of other toolboxes, in their own layouts and formats, become the code sets that they were
made from.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

import channelhash as ch
from channelhash.codes.foreign_files import _LAYOUTS, _bits_of, read_export
from channelhash.errors import InputError
from data.test_features import write_as as write
from refusals import check_refusal

RANDOM = np.random.default_rng(0)
BITS = {
    name: RANDOM.random((n, 12)) < 0.5
    for name, n in (("B_q", 7), ("B_r", 30), ("other_q", 7), ("other_r", 30))
}
LABELS = {name: RANDOM.random((n, 5)) < 0.4 for name, n in (("L_q", 7), ("L_r", 30))}


def signs(bits: np.ndarray) -> np.ndarray:
    return np.where(bits, 1.0, -1.0)


def plain(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """An export under the plain names, codes ±1."""
    arrays = {"B_q": signs(BITS["B_q"]), "B_r": signs(BITS["B_r"])}
    return arrays | {name: labels.astype(float) for name, labels in LABELS.items()} | changes


def assert_holds(codes: ch.CodeSet, expected: dict[str, np.ndarray], labels: np.ndarray) -> None:
    assert list(codes.codes) == list(expected)
    for modality, bits in expected.items():
        np.testing.assert_array_equal(ch.codes.unpack(codes.codes[modality], codes.n_bits), bits)
    np.testing.assert_array_equal(codes.labels, labels)


@pytest.mark.parametrize("name", ["e.mat", "e.v73.mat", "e.npz", "e.h5"])
@pytest.mark.parametrize(
    "as_stored", [signs, np.float32, np.uint8, lambda bits: signs(bits).astype(np.int8)]
)
def test_codes_of_every_type_and_format_are_the_same(tmp_path, name, as_stored):
    export = plain(B_q=as_stored(BITS["B_q"]), B_r=as_stored(BITS["B_r"]))
    query, database = read_export(write(tmp_path / name, export))
    assert_holds(query, {"query": BITS["B_q"]}, LABELS["L_q"])
    assert_holds(database, {"database": BITS["B_r"]}, LABELS["L_r"])
    assert query.n_bits == 12


def two_modalities() -> dict[str, np.ndarray]:
    """As `train/hash_train.py` of github.com/QinLab-WFU/DSPH saves it."""
    codes = {"q_img": "B_q", "q_txt": "other_q", "r_img": "B_r", "r_txt": "other_r"}
    labels = {"q_l": LABELS["L_q"].astype(np.float32), "r_l": LABELS["L_r"].astype(np.float32)}
    return {name: signs(BITS[source]).astype(np.float32) for name, source in codes.items()} | labels


def test_the_layout_with_both_modalities_gives_four_tasks(tmp_path):
    query, database = read_export(write(tmp_path / "e.mat", two_modalities()))
    assert_holds(query, {"image": BITS["B_q"], "text": BITS["other_q"]}, LABELS["L_q"])
    assert_holds(database, {"image": BITS["B_r"], "text": BITS["other_r"]}, LABELS["L_r"])
    assert list(ch.metrics.evaluate(query, database)) == [
        "image->text",
        "text->image",
        "image->image",
        "text->text",
    ]
    export = {name: values for name, values in two_modalities().items() if "txt" not in name}
    assert list(ch.metrics.evaluate(*read_export(write(tmp_path / "e.mat", export)))) == [
        "image->image"
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("tst_binary", "trn_binary", "tst_label", "trn_label"),
        (
            "cifar10-0.78-tst_binary",
            "cifar10-0.78-trn_binary",
            "cifar10-0.78-tst_label",
            "cifar10-0.78-trn_label",
        ),
        ("test_code", "database_code", "test_labels", "database_labels"),
        ("qB", "rB", "queryL", "retrievalL"),
        ("val_B", "retrieval_B", "L_te", "L_db"),
    ],
)
def test_arrays_in_files_of_their_own_are_named_by_their_words(tmp_path, names):
    for name, ours in zip(names, ("B_q", "B_r", "L_q", "L_r"), strict=True):
        np.save(tmp_path / f"{name}.npy", plain()[ours])
    np.save(
        tmp_path / "train_codes.npy" if "database" in names[1] else tmp_path / "losses.npy",
        np.ones((2, 12)),
    )
    (tmp_path / "._tst_binary.npy").write_bytes(b"of a Mac")
    query, database = read_export(tmp_path)
    assert_holds(query, {"query": BITS["B_q"]}, LABELS["L_q"])
    assert_holds(database, {"database": BITS["B_r"]}, LABELS["L_r"])


def test_two_results_in_one_folder_are_not_mixed(tmp_path):
    for run in "ab":
        for name, ours in {
            "tst_binary": "B_q",
            "trn_binary": "B_r",
            "tst_label": "L_q",
            "trn_label": "L_r",
        }.items():
            np.save(tmp_path / f"{run}-{name}.npy", plain()[ours])
    check_refusal(r"needs B_q, L_q, B_r, L_r; or .*; it has a-trn_binary", read_export, tmp_path)
    with pytest.raises(
        InputError, match=r"one array of four; name its folder, or save one \.npz.*B_q"
    ):
        read_export(tmp_path / "a-tst_binary.npy")
    check_refusal(
        r"is no Parquet file; .* reads one \.npz of B_q",
        ch.CodeSet.load,
        tmp_path / "a-tst_binary.npy",
    )


def test_arrays_of_other_names_and_the_modalities_can_be_said(tmp_path):
    export = plain()
    export["HashTest"] = export.pop("B_q")
    query, database = read_export(
        write(tmp_path / "e.npz", export), {"B_q": "HashTest"}, "image->text"
    )
    assert_holds(query, {"image": BITS["B_q"]}, LABELS["L_q"])
    assert_holds(database, {"text": BITS["B_r"]}, LABELS["L_r"])


@pytest.mark.parametrize("name", ["e.mat", "e.v73.mat", "e.npz"])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (1, -1)])
def test_numbers_of_classes_become_labels_of_both_sides(tmp_path, name, shape):
    classes = {"L_q": np.arange(7) % 3, "L_r": 1 + np.arange(30) % 4}
    export = plain(**{key: values.reshape(shape) for key, values in classes.items()})
    query, database = read_export(write(tmp_path / name, export))
    same_class = classes["L_q"][:, None] == classes["L_r"]
    np.testing.assert_array_equal(
        (query.labels[:, None] & database.labels).any(axis=-1), same_class
    )
    assert query.labels.sum(axis=1).tolist() == [1] * 7


@given(arrays(np.bool_, st.tuples(st.integers(1, 4), st.integers(1, 9))), st.sampled_from("bhifd"))
def test_bits_survive_every_way_of_writing_them(bits, kind):
    np.testing.assert_array_equal(_bits_of(np.where(bits, 1, -1).astype(kind)), bits)
    for unsigned in (kind, "B", "?"):
        np.testing.assert_array_equal(_bits_of(bits.astype(unsigned)), bits)


@given(
    arrays(np.float64, (3, 4), elements=st.sampled_from([-1.0, 1.0])),
    st.integers(0, 2),
    st.integers(0, 3),
    st.floats().filter(lambda value: value not in (-1, 0, 1)),
)
def test_any_other_value_is_named_with_its_place(codes, row, column, value):
    codes[row, column] = value
    check_refusal(
        rf"not {value} \(row {row}, column {column}\)".replace("+", r"\+"),
        _bits_of,
        codes,
        error=ValueError,
    )


REFUSED = [
    (plain(L_q=np.ones((6, 5))), r"7 codes, but L_q is \(6, 5\); both have one row an item"),
    (plain(B_r=signs(BITS["B_r"]).T), r"codes differ in length: B_q 12, B_r 30 columns"),
    (plain(B_q=np.full((7, 12), np.nan)), r"B_q: codes are ±1 or 0/1, not nan \(row 0, column 0\)"),
    (
        plain(B_q=0.5 * signs(BITS["B_q"])),
        r"B_q: codes are ±1 or 0/1, not -?0\.5 .*; save signs of real values",
    ),
    (
        plain(B_q=np.packbits(BITS["B_q"], axis=1)),
        r"B_q: codes are ±1 or 0/1, not \d+ .* and packed bits unpacked",
    ),
    (
        plain(B_r=np.sign(np.arange(360.0).reshape(30, 12) - 3)),
        r"B_r: .* not both: 0\.0 \(row 0, column 3\) beside −1",
    ),
    (plain(B_q=np.zeros((7, 12, 2))), r"B_q: codes are an \(n, k\) matrix of numbers"),
    (plain(B_r=np.zeros((0, 12)), L_r=np.zeros((0, 5))), r"B_r is empty, \(0, 12\)"),
    (plain(L_r=1 + np.arange(30.0)), r"L_q has 5 columns \(labels\), L_r has 1"),
    (
        plain(L_q=-signs(LABELS["L_q"])),
        r"L_q: labels are bool or 0 and 1, not -1\.0 \(row \d, column \d\)",
    ),
    (
        plain(L_q=np.full((7, 1), np.nan), L_r=np.ones((30, 1))),
        r"L_q is one column, but not of whole numbers",
    ),
    (
        plain(L_q=np.ones((7, 1)), L_r=np.eye(30)[:, :1]),
        r"L_q and L_r are one column of 0 and 1; save two columns",
    ),
    (
        plain() | two_modalities(),
        r"holds two exports, one under B_q, L_q, B_r, L_r and one under q_img",
    ),
    ({"B_q": BITS["B_q"], "L_r": LABELS["L_r"]}, r"lacks L_q and B_r; it has B_q, L_r"),
    (
        {"q_img": BITS["B_q"], "q_l": LABELS["L_q"]},
        r"lacks r_img or r_txt and r_l; it has q_img, q_l",
    ),
    ({"codes": BITS["B_q"]}, r"needs B_q, L_q, B_r, L_r; or q_img, .*; it has codes"),
    (two_modalities() | {"q_txt": np.ones((6, 12))}, r"q_txt has 6 rows, q_img has 7"),
]


@pytest.mark.parametrize(("export", "message"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, export, message):
    check_refusal(rf"e\.npz: {message}", read_export, write(tmp_path / "e.npz", export))


@pytest.mark.parametrize(
    ("export", "names", "task", "message"),
    [
        (plain(), {"Bq": "B_q"}, None, "names Bq=B_q: Bq is none of B_q, L_q, B_r, L_r, q_img"),
        (
            plain(),
            {"B_q": "gone"},
            None,
            "has no array 'gone' to read as B_q; it has B_q, B_r, L_q, L_r",
        ),
        (
            two_modalities(),
            {},
            "image->text",
            "task image->text: the arrays of .* name their modalities",
        ),
        *(
            (plain(), {}, task, f"task {task}: expected two modalities")
            for task in ("image", "->text", "a->", "a->b->c")
        ),
    ],
)
def test_names_and_tasks_that_make_no_sense_are_refused(tmp_path, export, names, task, message):
    check_refusal(message, read_export, write(tmp_path / "e.npz", export), names, task)


def test_the_documentation_names_every_array_that_is_recognised():
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md").read_text()
    for side in (side for sides in _LAYOUTS for side in sides):
        for name in (*side.codes.values(), side.labels):
            assert f"`{name}`" in text


@pytest.mark.parametrize("extra", [["B_val", "L_val"], ["note"]], ids=str)
def test_arrays_that_are_not_read_are_named_in_a_warning(tmp_path, caplog, extra):
    np.savez(tmp_path / "f.npz", **plain(), **{name: np.eye(2) for name in extra})
    read_export(tmp_path / "f.npz")
    (record,) = caplog.records
    assert f"f.npz: not read: {', '.join(extra)};" in record.getMessage()
    caplog.clear()
    np.savez(tmp_path / "f.npz", **plain())
    read_export(tmp_path / "f.npz")
    assert not caplog.records
