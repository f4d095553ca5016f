from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadDataset
from familiar.datasets.attributes import read_attributes
from familiar.datasets.folders import IdentityTable


@pytest.fixture
def table() -> IdentityTable:
    """Three cats with two photos each."""
    labels = np.repeat(np.arange(3), 2)
    return IdentityTable(
        tuple(Path(f"cats/{label}/{row % 2}.png") for row, label in enumerate(labels.tolist())),
        labels.astype(np.int64),
        ("cats/0", "cats/1", "cats/2"),
    )


def written(folder: Path, text: str) -> Path:
    path = folder / "facts.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_identity_facts_apply_to_all_their_photos(table, tmp_path):
    path = written(tmp_path, "identity, coat ,age\n0,black,1\ncats/1,tabby,\n9,white,3\n")
    coat, age = read_attributes(path, table)
    assert coat.values == ("black", "black", "tabby", "tabby", None, None)
    assert age.values == ("1", "1", None, None, None, None)
    assert {value: rows.tolist() for value, rows in coat.rows_by_value().items()} == {
        "black": [0, 1],
        "tabby": [2, 3],
    }
    (only,) = read_attributes(path, table, ["age"])
    assert only.name == "age"


@pytest.mark.parametrize("form", ["cats/1/0.png", "1/0.png"])
def test_photo_facts_apply_to_one_photo(table, tmp_path, form):
    (light,) = read_attributes(written(tmp_path, f"photo,light\n{form},night\n"), table)
    assert light.values == (None, None, "night", None, None, None)


def test_many_numbers_become_quartiles(tmp_path):
    table = IdentityTable(
        tuple(Path(f"d/{row}/a.png") for row in range(40)),
        np.arange(40),
        tuple(f"d/{row}" for row in range(40)),
    )
    text = "identity,age\n" + "".join(f"{row},{row}\n" for row in range(39))
    (age,) = read_attributes(written(tmp_path, text), table)
    rows = age.rows_by_value()
    assert len(rows) == 4
    assert {len(quarter) for quarter in rows.values()} == {9, 10}
    assert age.values[0] == "0 to 9.5"
    assert age.values[39] is None


def test_large_numbers_have_distinct_quartiles(tmp_path):
    table = IdentityTable(
        tuple(Path(f"d/{row}/a.png") for row in range(40)),
        np.arange(40),
        tuple(f"d/{row}" for row in range(40)),
    )
    text = "identity,time\n" + "".join(f"{row},{1_700_000_000 + 7 * row}\n" for row in range(40))
    (time,) = read_attributes(written(tmp_path, text), table)
    assert len(time.rows_by_value()) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,coat\n0,black\n", "the CSV needs a column photo or identity"),
        ("identity,coat\nnobody,black\n", "no row is about"),
        ("identity\n0\n", "no other column than"),
        ("identity,coat,coat\n0,a,b\n", "must be unique"),
        ("identity,,coat\n0,a,b\n", "must be unique"),
        ("photo,coat\n0.png,a\n", "several identities have a photo 0.png"),
        ("", "the CSV needs a column photo or identity"),
    ],
)
def test_rejects_malformed_or_unmatched_csv(table, tmp_path, text, message):
    with pytest.raises(BadDataset, match=message):
        read_attributes(written(tmp_path, text), table)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("0,white", "facts.csv:3: values for 0 differ"),
        ("1,black,more", "facts.csv:3: has more or fewer"),
        ("1", "facts.csv:3: has more or fewer"),
        ('"1"x,black', "facts.csv:3: "),
    ],
)
def test_bad_row_is_skipped_with_a_warning(table, tmp_path, caplog, bad, message):
    (coat,) = read_attributes(written(tmp_path, f"identity,coat\n0,black\n{bad}\n2,gray\n"), table)
    assert list(coat.rows_by_value()) == ["black", "gray"]
    (record,) = caplog.records
    assert message in record.message


def test_rejects_unreadable_file_and_missing_column(table, tmp_path):
    with pytest.raises(BadDataset, match="cannot be read"):
        read_attributes(tmp_path / "gone.csv", table)
    (tmp_path / "latin.csv").write_bytes(b"identity,coat\n0,\xe9\n")
    with pytest.raises(BadDataset, match="cannot be read"):
        read_attributes(tmp_path / "latin.csv", table)
    with pytest.raises(BadDataset, match="no column weight"):
        read_attributes(written(tmp_path, "identity,coat\n0,black\n"), table, ["weight"])


@pytest.mark.parametrize(
    ("key", "cell"),
    [("identity", "Jose\u0301\u3000"), ("photo", "pets/Jos\u00e9\u200e/Jos\u00e9.png"), ("photo", "Jos\u00e9.png")],
)
def test_identities_and_photos_are_found_in_every_spelling(tmp_path, key, cell):
    table = IdentityTable((Path("pets/Jose\u0301/Jose\u0301.png"),), np.zeros(1, np.int64), ("pets/Jos\u00e9",))
    (coat,) = read_attributes(written(tmp_path, f"{key},coat\n{cell},gray\n"), table)
    assert coat.values == ("gray",)
