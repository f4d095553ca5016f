from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadDataset
from familiar.datasets.folders import IdentityTable, scan_folders
from familiar.datasets.pairs import read_lfw_pairs
from familiar.datasets.synthetic import SyntheticPhoto

ROWS = ["Ann_0001", "Ann_0002", "Ann_0012", "Bob_0001", "Bob_0002", "Cy_0001"]


@pytest.fixture
def table() -> IdentityTable:
    """Rows 0 to 5 are `ROWS`, in files of several kinds; rows 6 and 7 are drawn."""
    names = ("lfw/Ann", "lfw/Bob", "lfw/Cy", "synthetic:cats/000000")
    files = [
        Path("lfw", row.split("_")[0], row + suffix)
        for row, suffix in zip(ROWS, [".jpg", ".png"] * 3, strict=True)
    ]
    drawn = [SyntheticPhoto("cats", 0, index) for index in range(2)]
    return IdentityTable((*files, *drawn), np.array([0, 0, 0, 1, 1, 2, 3, 3]), names)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pairs.txt"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("header", ["2\n", "1\t2\n", "", "\n", "\ufeff2\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_pairs_of_one_and_of_two(header: str, newline: str, table: IdentityTable, tmp_path: Path) -> None:
    text = header + "Ann\t1\t12\nBob\t2\t1\nAnn\t2\tCy\t1\nCy\t1\tBob\t1\n\n"
    pairs = read_lfw_pairs(written(tmp_path, text.replace("\n", newline)), table)
    assert [ROWS[row] for row in pairs.left] == ["Ann_0001", "Bob_0002", "Ann_0002", "Cy_0001"]
    assert [ROWS[row] for row in pairs.right] == ["Ann_0012", "Bob_0001", "Cy_0001", "Bob_0001"]
    assert pairs.same.tolist() == [True, True, False, False]


def test_rows_are_those_of_the_table_given(table: IdentityTable, tmp_path: Path) -> None:
    backwards = table.rows(np.arange(len(table))[::-1].copy())
    pairs = read_lfw_pairs(written(tmp_path, "Ann\t1\t12\n"), backwards)
    assert [backwards.photos[row].name for row in (pairs.left[0], pairs.right[0])] == [
        "Ann_0001.jpg",
        "Ann_0012.jpg",
    ]


def test_names_of_any_kind(tmp_path: Path) -> None:
    names = ["7", "a b", "قطة", "O'Neil-Smith"]
    table = IdentityTable(
        tuple(Path("lfw", name, f"{name}_000{number}.jpg") for name in names for number in (1, 2)),
        np.repeat(np.arange(4), 2),
        tuple(f"lfw/{name}" for name in names),
    )
    text = "4\n" + "".join(f"{name}\t1\t2\n" for name in names) + "7\t1\tقطة\t2\n"
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
def test_a_missing_photo_is_named_with_file_and_line(
    line: str, photo: str, table: IdentityTable, tmp_path: Path
) -> None:
    with pytest.raises(BadDataset, match=rf"pairs\.txt:3: photo {photo} is not in the data$"):
        read_lfw_pairs(written(tmp_path, f"1\nAnn\t1\t2\n{line}\n"), table)


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "Ann 1 2",
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
def test_a_line_that_is_no_pair_is_shown_with_file_and_line(
    line: str, table: IdentityTable, tmp_path: Path
) -> None:
    with pytest.raises(BadDataset) as caught:
        read_lfw_pairs(written(tmp_path, f"1\nAnn\t1\t2\n{line}\n"), table)
    assert str(caught.value).endswith(f"pairs.txt:3: neither NAME I J nor NAME I OTHER J: {line!r}")


@pytest.mark.parametrize("line", ["Ann\t1\t1", "Ann\t12\t0012", "Ann\t1\tAnn\t1"])
def test_a_photo_paired_with_itself_is_shown_with_file_and_line(
    line: str, table: IdentityTable, tmp_path: Path
) -> None:
    with pytest.raises(BadDataset) as caught:
        read_lfw_pairs(written(tmp_path, f"1\nAnn\t1\t2\n{line}\n"), table)
    assert str(caught.value).endswith(f"pairs.txt:3: a photo paired with itself: {line!r}")


@pytest.mark.parametrize("text", ["", "\n\n", "500\n", "10\t300\n"])
def test_a_file_without_pairs_is_refused(text: str, table: IdentityTable, tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=r"pairs\.txt: holds no pair$"):
        read_lfw_pairs(written(tmp_path, text), table)


def test_what_is_no_text_is_refused(table: IdentityTable, tmp_path: Path) -> None:
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    for name in ("binary.txt", "missing.txt", "."):
        with pytest.raises(BadDataset, match="cannot be read"):
            read_lfw_pairs(tmp_path / name, table)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "each"), [("pairsDevTest.txt", 500), ("pairsDevTrain.txt", 1100), ("pairs.txt", 3000)]
)
def test_lfws_own_pairs(name: str, each: int, shared_data: Path) -> None:
    table = scan_folders(shared_data / "lfw_112")
    pairs = read_lfw_pairs(shared_data / "lfw_112" / name, table)
    assert int(pairs.same.sum()) == int((~pairs.same).sum()) == each
    assert np.array_equal(table.labels[pairs.left] == table.labels[pairs.right], pairs.same)
    assert (pairs.left != pairs.right).all()
