from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadDataset
from familiar.datasets.folders import IdentityTable, scan_folders
from familiar.datasets.pairs import read_lfw_folds, read_lfw_pairs, read_lfw_people
from familiar.datasets.synthetic import SyntheticPhoto

ROWS = ["Ann_0001", "Ann_0002", "Ann_0012", "Bob_0001", "Bob_0002", "Cy_0001"]


@pytest.fixture
def table() -> IdentityTable:
    """Rows 0 to 5 are `ROWS`, in files of several formats; rows 6 and 7 are drawn."""
    names = ("lfw/Ann", "lfw/Bob", "lfw/Cy", "synthetic:cats/000000")
    files = [
        Path("lfw", row.split("_")[0], row + suffix) for row, suffix in zip(ROWS, [".jpg", ".png"] * 3, strict=True)
    ]
    drawn = [SyntheticPhoto("cats", 0, index) for index in range(2)]
    return IdentityTable((*files, *drawn), np.array([0, 0, 0, 1, 1, 2, 3, 3]), names)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pairs.txt"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("header", ["2\n", "1\t2\n", "", "\n", "\ufeff2\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_reads_same_and_different_pairs(header: str, newline: str, table: IdentityTable, tmp_path: Path) -> None:
    text = header + "Ann\t1\t12\nBob\t2\t1\nAnn\t2\tCy\t1\nCy\t1\tBob\t1\n\n"
    pairs = read_lfw_pairs(written(tmp_path, text.replace("\n", newline)), table)
    assert [ROWS[row] for row in pairs.left] == ["Ann_0001", "Bob_0002", "Ann_0002", "Cy_0001"]
    assert [ROWS[row] for row in pairs.right] == ["Ann_0012", "Bob_0001", "Cy_0001", "Bob_0001"]
    assert pairs.same.tolist() == [True, True, False, False]


@pytest.mark.parametrize("separator", [" ", "  "])
def test_fields_may_be_separated_by_spaces(separator: str, table: IdentityTable, tmp_path: Path) -> None:
    text = f"2\t1\n{TWO_FOLDS}"
    expected = read_lfw_folds(written(tmp_path, text), table)
    folded = read_lfw_folds(written(tmp_path, text.replace("\t", separator).replace("\n", " \n")), table)
    assert folded.pairs.left.tolist() == expected.pairs.left.tolist()
    assert folded.pairs.right.tolist() == expected.pairs.right.tolist()
    assert folded.pairs.same.tolist() == expected.pairs.same.tolist()
    assert folded.fold.tolist() == expected.fold.tolist() == [0, 0, 1, 1]


def test_rows_index_given_table(table: IdentityTable, tmp_path: Path) -> None:
    backwards = table.select_rows(np.arange(len(table))[::-1].copy())
    pairs = read_lfw_pairs(written(tmp_path, "Ann\t1\t12\n"), backwards)
    assert [backwards.photos[row].name for row in (pairs.left[0], pairs.right[0])] == [
        "Ann_0001.jpg",
        "Ann_0012.jpg",
    ]


def test_accepts_names_with_digits_spaces_and_unicode(tmp_path: Path) -> None:
    names = ["7", "a b", "قطة", "O'Neil-Smith"]
    table = IdentityTable(
        tuple(Path("lfw", name, f"{name}_000{number}.jpg") for name in names for number in (1, 2)),
        np.repeat(np.arange(4), 2),
        tuple(f"lfw/{name}" for name in names),
    )
    text = "".join(f"{name}\t1\t2\n" for name in names) + "7\t1\tقطة\t2\n"
    pairs = read_lfw_pairs(written(tmp_path, text), table)
    assert pairs.left.tolist() == [0, 2, 4, 6, 0]
    assert pairs.right.tolist() == [1, 3, 5, 7, 5]


@pytest.mark.parametrize(
    ("line", "photo"),
    [
        ("Ann\t1\t3", "Ann/Ann_0003"),
        ("Ann\t0\t1", "Ann/Ann_0000"),
        ("Dan\t1\t2", "Dan/Dan_0001"),
        ("Ann\t1\tDan\t2", "Dan/Dan_0002"),
        ("Ann\t1\tBob\t10000", "Bob/Bob_10000"),
        ("ann\t1\t2", "ann/ann_0001"),
    ],
)
def test_rejects_missing_photo_with_file_and_line(line: str, photo: str, table: IdentityTable, tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=rf"pairs\.txt:3: photo {photo} is not in the data$"):
        read_lfw_pairs(written(tmp_path, f"1\nAnn\t1\t2\n{line}\n"), table)


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "Ann Lee 1 2",
        "Ann 1",
        "Ann\t1 2",
        "Ann\t1",
        "Ann\tone\ttwo",
        "Ann\t1\t-2",
        "Ann\t1\t²",
        "Ann\t1.0\t2",
        "Ann\t1\tBob",
        "Ann\tBob\t1\t2",
        "Ann\t1\tBob\t2\t3",
        "Ann\t1\t2\t",
    ],
)
def test_rejects_malformed_line_with_file_and_line(line: str, table: IdentityTable, tmp_path: Path) -> None:
    with pytest.raises(BadDataset) as caught:
        read_lfw_pairs(written(tmp_path, f"1\nAnn\t1\t2\n{line}\n"), table)
    assert str(caught.value).endswith(
        f"pairs.txt:3: expected NAME NUMBER NUMBER or NAME NUMBER OTHER_NAME NUMBER, got {line!r}"
    )


@pytest.mark.parametrize("line", ["Ann\t1\t1", "Ann\t12\t0012", "Ann\t1\tAnn\t1"])
def test_rejects_photo_paired_with_itself(line: str, table: IdentityTable, tmp_path: Path) -> None:
    with pytest.raises(BadDataset) as caught:
        read_lfw_pairs(written(tmp_path, f"1\nAnn\t1\t2\n{line}\n"), table)
    assert str(caught.value).endswith(f"pairs.txt:3: a photo paired with itself: {line!r}")


@pytest.mark.parametrize("text", ["", "\n\n", "500\n", "10\t300\n"])
def test_rejects_file_without_pairs(text: str, table: IdentityTable, tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=r"pairs\.txt: contains no pair$"):
        read_lfw_pairs(written(tmp_path, text), table)


def test_rejects_unreadable_pairs_file(table: IdentityTable, tmp_path: Path) -> None:
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    for name in ("binary.txt", "missing.txt", "."):
        with pytest.raises(BadDataset, match="cannot be read"):
            read_lfw_pairs(tmp_path / name, table)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "each"), [("pairsDevTest.txt", 500), ("pairsDevTrain.txt", 1100), ("pairs.txt", 3000)]
)
def test_lfw_pairs_have_published_counts(name: str, each: int, shared_data: Path) -> None:
    table = scan_folders(shared_data / "lfw_112")
    pairs = read_lfw_pairs(shared_data / "lfw_112" / name, table)
    assert int(pairs.same.sum()) == int((~pairs.same).sum()) == each
    assert np.array_equal(table.labels[pairs.left] == table.labels[pairs.right], pairs.same)
    assert (pairs.left != pairs.right).all()


# The header


@pytest.mark.parametrize(
    ("header", "expected", "actual"),
    [
        ("2\n", "1 x 2", "1 and 1"),
        ("0\n", "1 x 0", "1 and 1"),
        ("2\t1\n", "2 x 1", "1 and 1"),
        ("10\t300\n", "10 x 300", "1 and 1"),
    ],
)
def test_rejects_pair_count_that_differs_from_header(
    header: str, expected: str, actual: str, table: IdentityTable, tmp_path: Path
) -> None:
    path = written(tmp_path, header + "Ann\t1\t2\nAnn\t1\tBob\t1\n")
    for reader in (read_lfw_pairs, read_lfw_folds):
        with pytest.raises(BadDataset, match=rf"pairs\.txt: the first line says {expected} .* has {actual}\. Download"):
            reader(path, table)


def test_rejects_second_header_line(table: IdentityTable, tmp_path: Path) -> None:
    for text in ("1\n1\nAnn\t1\t2\n", "Ann\t1\t2\n1\n", "1\t2\nAnn\t1\t2\n1\t2\n"):
        with pytest.raises(BadDataset, match=r"pairs\.txt:\d: expected NAME NUMBER NUMBER or"):
            read_lfw_pairs(written(tmp_path, text), table)


# Folds

TWO_FOLDS = "Ann\t1\t2\nAnn\t1\tBob\t1\nBob\t1\t2\nCy\t1\tBob\t2\n"


def test_header_sets_fold_size(table: IdentityTable, tmp_path: Path) -> None:
    folded = read_lfw_folds(written(tmp_path, f"2\t1\n{TWO_FOLDS}"), table)
    assert folded.fold.tolist() == [0, 0, 1, 1]
    assert folded.pairs.same.tolist() == [True, False, True, False]
    assert [ROWS[row] for row in folded.pairs.left] == ["Ann_0001", "Ann_0001", "Bob_0001", "Cy_0001"]


def test_view_1_is_one_fold(table: IdentityTable, tmp_path: Path) -> None:
    text = "2\nAnn\t1\t2\nBob\t1\t2\nAnn\t1\tBob\t1\nCy\t1\tBob\t2\n"
    assert read_lfw_folds(written(tmp_path, text), table).fold.tolist() == [0] * 4


def test_rejects_folds_without_header(table: IdentityTable, tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=r"pairs\.txt: the first line must contain the number of folds"):
        read_lfw_folds(written(tmp_path, TWO_FOLDS), table)


def test_rejects_pairs_outside_their_fold(table: IdentityTable, tmp_path: Path) -> None:
    swapped = "Ann\t1\t2\nBob\t1\t2\nAnn\t1\tBob\t1\nCy\t1\tBob\t2\n"
    with pytest.raises(BadDataset, match=r"pairs\.txt: pair 2 is in the wrong position: a fold has 1 pairs of one"):
        read_lfw_folds(written(tmp_path, f"2\t1\n{swapped}"), table)


# People


@pytest.mark.parametrize(
    ("text", "folds"),
    [
        ("2\nAnn\t1\nBob\t12\n", [{"Ann", "Bob"}]),
        ("2\n2\nAnn\t1\nBob\t2\n1\nCy\t3\n", [{"Ann", "Bob"}, {"Cy"}]),
        ("\ufeff2\r\n1\r\nAnn\t1\r\n1\r\n7\t2\r\n\r\n", [{"Ann"}, {"7"}]),
        ("1\n1\nAnn\t1\n", [{"Ann"}]),
        ("1\nAnn Lee\t1", [{"Ann Lee"}]),
        ("2\n1\nAnn 1 \n1\n7   2\n", [{"Ann"}, {"7"}]),
    ],
)
def test_reads_people_by_fold(text: str, folds: list[set[str]], tmp_path: Path) -> None:
    assert list(read_lfw_people(written(tmp_path, text))) == folds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"0 folds of \[\] people, but its header lines say 0 of \[\]"),
        ("0\n", r"1 folds of \[0\] people"),
        ("3\nAnn\t1\nBob\t12\n", r"1 folds of \[2\] people, but its header lines say 1 of \[3\]; download it again"),
        ("1\nAnn\t1\nBob\t12\n", r"1 folds of \[2\] people, but its header lines say 1 of \[1\]"),
        ("2\n2\nAnn\t1\nBob\t2\n", r"1 folds of \[2\] people, but its header lines say 2 of \[2\]"),
        ("2\n2\nAnn\t1\n2\nCy\t3\nBob\t2\n", r"2 folds of \[1, 2\] people, but its header lines say 2 of \[2, 2\]"),
        ("2\nAnn\t1\nAnn\t1\n", "Ann occurs 2 times"),
        ("2\n1\nAnn\t1\n1\nAnn\t1\n", "Ann occurs 2 times"),
        ("Ann\t1\n", r":1: neither a number of people nor NAME PHOTOS: 'Ann\\t1'"),
        ("1\nAnn\n", r":2: neither a number of people"),
        ("1\nAnn\t1\t2\n", r":2: neither a number of people"),
        ("1\nAnn\tone\n", r":2: neither a number of people"),
    ],
)
def test_rejects_people_that_do_not_match_header(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=rf"pairs\.txt:? ?{message}"):
        read_lfw_people(written(tmp_path, text))


def test_rejects_unreadable_people_file(tmp_path: Path) -> None:
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    for name in ("binary.txt", "missing.txt"):
        with pytest.raises(BadDataset, match="cannot be read"):
            read_lfw_people(tmp_path / name)


@pytest.mark.slow
@pytest.mark.shared_data
def test_lfw_folds_match_published_people(shared_data: Path) -> None:
    table = scan_folders(shared_data / "lfw_112")
    folded = read_lfw_folds(shared_data / "lfw_112" / "pairs.txt", table)
    people = read_lfw_people(shared_data / "lfw_112" / "people.txt")
    assert len(people) == 10
    assert sum(map(len, people)) == 5749
    assert np.bincount(folded.fold[folded.pairs.same]).tolist() == [300] * 10
    assert np.bincount(folded.fold[~folded.pairs.same]).tolist() == [300] * 10
    for fold, names in enumerate(people):  # View 2: the pairs of a fold are of its own people
        rows = folded.fold == fold
        labels = table.labels[np.concatenate([folded.pairs.left[rows], folded.pairs.right[rows]])]
        assert {table.names[label].split("/")[1] for label in labels} <= names


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "people"), [("peopleDevTrain.txt", 4038), ("peopleDevTest.txt", 1711)])
def test_lfw_people_have_published_counts(name: str, people: int, shared_data: Path) -> None:
    assert list(map(len, read_lfw_people(shared_data / "lfw_112" / name))) == [people]


def test_names_are_found_in_every_spelling(tmp_path: Path) -> None:
    names = ("lfw/Jos\u00e9", "lfw/\u5c71\u7530 \u592a\u90ce")
    photos = (Path("Jose\u0301_0001.jpg"), Path("Jose\u0301_0002.jpg"), Path("\u5c71\u7530\u3000\u592a\u90ce_0001.jpg"))
    table = IdentityTable(photos, np.array([0, 0, 1]), names)
    text = "Jos\u00e9 1 2\nJose\u0301 1 \u5c71\u7530\u3000\u592a\u90ce 1\n"
    pairs = read_lfw_pairs(written(tmp_path, text), table)
    assert list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == [(0, 1), (0, 2)]
    assert read_lfw_people(written(tmp_path, "1\nJose\u0301\t2\n")) == ({"Jos\u00e9"},)


def test_rejects_a_photo_that_two_folders_of_one_identity_have(tmp_path: Path) -> None:
    table = IdentityTable(
        (Path("a/Jos\u00e9_0001.jpg"), Path("b/Jose\u0301_0001.jpg"), Path("a/Jos\u00e9_0002.jpg")),
        np.zeros(3, np.int64),
        ("lfw/Jos\u00e9",),
    )
    with pytest.raises(BadDataset, match=r"txt:1: photo .*_0001 is in the data 2 times; rename all but one"):
        read_lfw_pairs(written(tmp_path, "Jos\u00e9 1 2\n"), table)
