"""The faces of a gallery for pandas, Arrow and NumPy."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar import Gallery
from familiar.core.errors import SpaceMismatch
from familiar.core.vectors import normalize
from familiar.gallery.same.assignments import UNASSIGNED
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.metrics.calibration import uncalibrated
from support.color_album import draw_album
from support.property_tests import expensive
from support.small_gallery import DIM, SPACE, draw_individuals, enroll_vectors

TEXT = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
ROUTER_SPACE = Space(
    "router",
    DIM + 4,
    (),
    uncalibrated(),
    parts=(replace(SPACE, species=("cat",)), Space("short", 4, (), uncalibrated(), species=("dog",))),
)


@pytest.fixture(params=["float16", "float32"])
def album(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gallery]:
    """Three faces of one individual and two of another, without photos."""
    with Store.create(tmp_path / "album", SPACE, embedding_dtype=request.param) as database:
        enroll_vectors(database, draw_individuals([3, 2]))
        gallery = Gallery(database)
        gallery.cluster()
        gallery.name(1, "Mia", confirm=True)
        yield gallery


def test_embeddings_are_what_the_gallery_has_in_memory(album: Gallery) -> None:
    stored = album.store.stored_faces().embeddings
    embeddings = album.embeddings()
    arrow = album.to_arrow()["embedding"]
    assert (
        embeddings.dtype == np.dtype(album.store.embedding_dtype) == np.dtype(arrow.type.value_type.to_pandas_dtype())
    )
    assert embeddings.ctypes.data == stored.ctypes.data
    assert arrow.chunk(0).values.to_numpy(zero_copy_only=True).ctypes.data == stored.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        embeddings[0] = 0


def test_table_of_faces(album: Gallery) -> None:
    frame = album.to_pandas()
    assert frame["face"].tolist() == [1, 2, 3, 4, 5]
    assert frame["path"].tolist() == [f"photo {index}.jpg" for index in range(5)]
    assert frame["identity"].tolist() == [1, 1, 1, 2, 2]
    assert [None if pd.isna(name) else name for name in frame["name"]] == ["Mia"] * 3 + [None] * 2
    assert frame["confirmed"].tolist() == [True] * 3 + [False] * 2
    assert frame["space"].unique().tolist() == ["drawn"]
    assert frame["taken_at"].isna().all()
    assert "embedding" not in frame
    assert len(album.to_pandas(vectors=True)["embedding"][0]) == DIM


def test_empty_gallery_has_all_columns(tmp_path: Path, album: Gallery) -> None:
    with Store.create(tmp_path / "empty", SPACE) as database:
        empty = Gallery(database)
        assert empty.embeddings().shape == (0, DIM)
        full, none = album.to_pandas(), empty.to_pandas()
        assert none.empty
        assert none.dtypes.to_dict() == full.dtypes.to_dict()
        assert empty.to_arrow().schema.names == album.to_arrow().schema.names
        assert repr(empty.table()).startswith("DataTable(0 rows: face, ")


def test_photos_with_faces(tmp_path: Path, mean_color_bundle: Path) -> None:
    with Gallery.create(tmp_path / "album", mean_color_bundle) as gallery:
        gallery.enroll(draw_album(tmp_path / "photos", red=2), species="cat")
        row = gallery.to_arrow().to_pylist()[0]
    assert row["path"] == str(tmp_path / "photos" / "red1.png")
    assert (row["species"], row["left_px"], row["right_px"], row["score"]) == ("cat", 0, 32, 1)
    assert row["identity"] is row["name"] is row["taken_at"] is None
    assert 0 < row["quality"] <= 1


def test_router_has_the_components_of_all_bundles(tmp_path: Path) -> None:
    rows = np.zeros((3, DIM + 4), np.float32)
    rows[:2, :DIM], rows[2, DIM:] = draw_individuals([2]), 0.5
    with Store.create(tmp_path / "album", ROUTER_SPACE, embedding_dtype="float32") as database:
        enroll_vectors(database, rows)
        table = Gallery(database).table()
    assert table["space"].tolist() == ["drawn", "drawn", "short"]
    components = {each["space"]: slice(each["first"], each["end"]) for each in table.metadata["components"]}
    np.testing.assert_array_equal(table["embedding"], rows)
    short = table["embedding"][table["space"] == "short", components["short"]]
    np.testing.assert_array_equal(short, [[0.5] * 4])
    assert (table["embedding"][:2] @ table["embedding"][2] == 0).all()  # as the gallery compares them


@expensive()
@given(st.lists(st.tuples(st.integers(0, 3), st.text(TEXT, min_size=1)), max_size=8))
def test_table_has_what_was_stored(faces: Sequence[tuple[int, str]]) -> None:
    """Names of photos may be any text, faces may be assigned or not."""
    faces = [(identity, f"{index} {name}") for index, (identity, name) in enumerate(faces)]
    rows = draw_individuals([1] * len(faces))
    with TemporaryDirectory() as folder, Store.create(Path(folder), SPACE) as database:
        gallery = Gallery(database)
        numbers = gallery.enroll_embeddings(rows, [name for _, name in faces])
        with database.write() as repository:
            repository.identities.insert(range(1, 4))
            assigned = {number: identity for number, (identity, _) in zip(numbers, faces, strict=True) if identity}
            repository.assignments.assign(assigned, by_user=True)
        arrow, frame = gallery.to_arrow(), gallery.to_pandas()
        assert arrow["face"].to_pylist() == frame["face"].tolist() == numbers
        assert arrow["path"].to_pylist() == frame["path"].tolist() == [name for _, name in faces]
        assert frame["confirmed"].tolist() == [identity > 0 for identity, _ in faces]
        identities = frame["identity"].fillna(UNASSIGNED).tolist()
        assert identities == [identity or UNASSIGNED for identity, _ in faces]
        np.testing.assert_array_equal(gallery.embeddings(), rows.astype(np.float16))


def test_rejects_name_that_no_file_can_have(tmp_path: Path) -> None:
    """Half of a character. A byte that is not UTF-8 is one that files do have."""
    with Store.create(tmp_path / "album", SPACE) as database:
        gallery, rows = Gallery(database), draw_individuals([1, 1])
        with pytest.raises(ValueError, match=r"'b\\ud800' cannot be the name of a photo"):
            gallery.enroll_embeddings(rows, ["a", "b\ud800"])
        assert gallery.statistics().faces == 0
        gallery.enroll_embeddings(rows, ["a", "b\udcff"])
        assert gallery.table()["path"].tolist() == ["a", "b\udcff"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_enrolls_embeddings_of_numpy_and_arrow(tmp_path: Path, dtype: str) -> None:
    rows = draw_individuals([2, 2]).astype(dtype)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), DIM)
    with Store.create(tmp_path / "album", SPACE) as database:
        gallery = Gallery(database)
        assert gallery.enroll_embeddings(rows[:2], ["a", "b"]) == [1, 2]
        assert gallery.enroll_embeddings(pa.table({"v": column})["v"], "abcd") == [3, 4]  # a and b are there
        assert gallery.enroll_embeddings(column.slice(0, 0), []) == []
        np.testing.assert_allclose(gallery.embeddings(), rows, atol=1e-3)


def test_refuses_embeddings_that_do_not_fit(tmp_path: Path) -> None:
    rows = draw_individuals([2])
    with Store.create(tmp_path / "album", SPACE) as database:
        gallery = Gallery(database)
        with pytest.raises(ValueError, match="3 names, 2 embeddings"):
            gallery.enroll_embeddings(rows, ["a", "b", "c"])
        many = np.repeat(rows[:1], 20_001, axis=0)  # more than are written at once
        many[-1] *= 2
        with pytest.raises(ValueError, match="not unit vectors"):
            gallery.enroll_embeddings(many, [f"{index}" for index in range(len(many))])
        with pytest.raises(ValueError, match=r"rows of numbers, got float32 of shape \(16,\)"):
            gallery.enroll_embeddings(rows[0], ["a"])
        with pytest.raises(SpaceMismatch):
            gallery.enroll_embeddings(normalize(rows[:, :5]), ["a", "b"])
        assert gallery.table()["face"].size == 0
