"""Tables of labeled photos from CSV, Parquet, COCO, data frames, Hugging Face's data sets and URLs."""

import io
import json
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from familiar.core.errors import BadDataset, UnreadablePhoto
from familiar.core.types import Box
from familiar.datasets.folders import DataSpec, open_photo, read_table, scan_folders
from familiar.datasets.identity_table import IdentityTable
from familiar.datasets.photo_references import BoxedPhoto
from familiar.datasets.split import photo_groups, split_photos
from familiar.loading.cache import CropCache
from familiar.loading.crops import read_table as read_crops
from familiar.photos.preprocessing import Preprocessing
from support.drawn_cats import draw_cats

HEADER = "path,identity,species,date,split\n"
ROWS = [
    ("cat-0/0.png", "cat-0", "cat", "2026-01-01", "train"),
    ("cat-0/1.png", "cat-0", "cat", "2026-03-01", "test"),
    ("cat-1/0.png", "cat-1", "cat", "2026-02-01", "train"),
    ("cat-1/1.png", "cat-1", "cat", "2026-04-01", "test"),
]
CSV = HEADER + "".join(",".join(row) + "\n" for row in ROWS)
COLUMNS = {name: [row[index] for row in ROWS] for index, name in enumerate(HEADER.strip().split(","))}


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    """Two drawn cats of two photos."""
    draw_cats(tmp_path / "cats", cats=2, photos=2)
    return tmp_path / "cats"


def rows_of(table: IdentityTable) -> list[tuple[str, str, str]]:
    names = [table.names[label] for label in table.labels]
    dates = table.columns["date"].astype(str).tolist()
    return list(zip(map(str, table.photos), names, dates, strict=True))


def write_every_format(cats: Path) -> dict[str, object]:
    """Return the same four rows as each kind of table."""
    (cats / "pets.csv").write_text(CSV)
    (cats / "pets.tsv").write_text(CSV.replace(",", "\t"))
    frame = pd.DataFrame(COLUMNS)
    frame.to_parquet(cats / "pets.parquet")
    images = [
        {"id": 10 + row, "file_name": path, "date_captured": date} for row, (path, _, _, date, _) in enumerate(ROWS)
    ]
    boxes = [
        {"id": row, "image_id": 10 + row, "bbox": [2, 3, 20, 10], "identity": identity, "category_id": 1}
        for row, (_, identity, *_) in enumerate(ROWS)
    ]
    categories = [{"id": 1, "name": "cat"}]
    (cats / "coco.json").write_text(json.dumps({"images": images, "annotations": boxes, "categories": categories}))
    return {
        "csv": cats / "pets.csv",
        "tsv": cats / "pets.tsv",
        "parquet": cats / "pets.parquet",
        "coco": cats / "coco.json",
        "frame": frame,
        "arrow": pa.table(COLUMNS),
        "columns": COLUMNS,
    }


def test_every_format_is_the_same_table(cats: Path):
    for kind, data in write_every_format(cats).items():
        table = read_table(data, images=cats, name="pets")
        root = {"parquet": "cats", "coco": "coco"}.get(kind, "pets")
        box = "#2,3,22,13" if kind == "coco" else ""
        assert rows_of(table) == [(f"{cats / path}{box}", f"{root}/{name}", date) for path, name, _, date, _ in ROWS], (
            kind
        )
        assert table.columns["species"].tolist() == ["cat"] * 4, kind
        assert open_photo(table.photos[3]).rgb_u8.shape[2] == 3


def test_wildlife_datasets_columns_are_read(cats: Path):
    frame = pd.DataFrame(
        {
            "image_id": [7, 8, 9],
            "identity": [3.0, 3.0, None],
            "path": [row[0] for row in ROWS[:3]],
            "bbox": [[1, 2, 10, 20], None, [0, 0, 5, 5]],
            "date": [pd.Timestamp("2026-05-31 10:30"), None, None],
            "orientation": ["left", "right", "left"],
        }
    )
    table = read_table(frame, images=cats)
    assert table.names == ("table/3",)
    assert table.ignored == {"photos without an identity": 1}
    assert table.photos[0] == BoxedPhoto(cats / ROWS[0][0], Box(1, 2, 11, 22))
    assert table.photos[1] == cats / ROWS[1][0]
    assert table.columns["date"].astype(str).tolist() == ["2026-05-31", "NaT"]


def test_box_is_read_as_a_photo_of_its_own(tmp_path: Path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "two.png")
    (tmp_path / "pets.csv").write_text('path,identity,box\ntwo.png,Mia,"5,6,25,36"\ntwo.png,Tom,"[30, 0, 99, 40]"\n')
    table = read_table(tmp_path / "pets.csv")
    mia, tom = (open_photo(photo) for photo in table.photos)
    assert np.array_equal(mia.rgb_u8, pixels[6:36, 5:25])
    assert np.array_equal(tom.rgb_u8, pixels[:, 30:])
    outside = BoxedPhoto(tmp_path / "two.png", Box(60, 0, 70, 10))
    with pytest.raises(UnreadablePhoto, match=r"two\.png#60,0,70,10: the box is outside the photo of 60 x 40 px"):
        open_photo(outside)


def test_crops_of_two_boxes_of_one_photo_differ(tmp_path: Path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 80, 3), np.uint8)).save(tmp_path / "two.png")
    preprocessing, cache = Preprocessing(size_px=32, resize_px=32), CropCache(tmp_path / "cache")

    def crops(boxes: str) -> list[bytes]:
        (tmp_path / "pets.csv").write_text(boxes)
        read = read_crops(read_table(tmp_path / "pets.csv"), preprocessing, cache)
        return [read.crops[row].tobytes() for row in range(2)] + [read.contents.encode()]

    before = crops("path,identity,box\ntwo.png,Mia,0 0 40 40\ntwo.png,Tom,40 0 80 40\n")
    after = crops("path,identity,box\ntwo.png,Mia,0 0 40 40\ntwo.png,Tom,44 0 80 40\n")
    assert before[0] == after[0] != before[1] != after[1]
    assert before[2] != after[2]


def test_folder_and_table_of_it_are_the_same_data(cats: Path, tmp_path: Path):
    folder = scan_folders(cats)
    assert folder.write_csv(tmp_path / "listed.csv")
    table = read_table(tmp_path / "listed.csv")
    assert list(table.photos) == [path.absolute() for path in folder.photos if isinstance(path, Path)]
    assert (table.names, table.fingerprint) == (folder.names, folder.fingerprint)
    again = read_table(table.to_pandas())
    assert (list(again.photos), again.names) == (list(table.photos), table.names)
    assert not DataSpec(("synthetic:cats:2x2",)).read().write_csv(tmp_path / "drawn.csv")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (",Mia,,", "line 3: has no path"),
        ("b.jpg,Mia,1 2 3,", "line 3: box is '1 2 3', not left,top,right,bottom in pixels"),
        ("b.jpg,Mia,9 9 9 9,", "line 3: box is '9 9 9 9', not left,top,right,bottom in pixels"),
        ("b.jpg,Mia,,last May", "line 3: date is 'last May', not as 2026-05-31"),
        ("b.jpg,Mia", "line 3: has 2 cells, the first line 4"),
        ('b.jpg,"Mia"x,,', "line 3: ',' expected after '\"'"),
    ],
)
def test_row_that_cannot_be_read_is_named_and_left_out(
    row: str, problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "pets.csv").write_text(f"path,identity,box,date\na.jpg,Mia,,\n{row}\nc.jpg,Tom,,2026\n")
    table = read_table(tmp_path / "pets.csv")
    assert [photo.name for photo in table.photos] == ["a.jpg", "c.jpg"]
    assert table.ignored == {"rows that cannot be read": 1}
    assert f"pets.csv: {problem}" in caplog.text
    (tmp_path / "pets.csv").write_text(f"path,identity,box,date\n\n{row}\n")
    with pytest.raises(
        BadDataset, match=r"pets.csv: has no photo with an identity; left out: 1 row.*; the first: line 3"
    ):
        read_table(tmp_path / "pets.csv")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"path": ["a.jpg"]}, r"has no column of identities; it has path, and one must be named identity"),
        ({"identity": ["Mia"]}, r"has no column of photos' paths; it has identity, and one must be named path"),
        (["a.jpg"], "a list is no table of photos"),
    ],
)
def test_what_is_no_table_is_refused(data: object, message: str):
    with pytest.raises(BadDataset, match=message):
        read_table(data)


@pytest.mark.parametrize("content", ["{", "[]", '{"images": [], "annotations": [{}]}'])
def test_json_that_is_not_coco_is_refused(content: str, tmp_path: Path):
    (tmp_path / "boxes.json").write_text(content)
    with pytest.raises(BadDataset, match=r"boxes\.json: cannot be read as a table of photos"):
        read_table(tmp_path / "boxes.json")


def test_table_behind_a_url_names_photos_behind_it(cats: Path):
    memory = fsspec.filesystem("memory")
    memory.put(str(cats), "/tables/cats", recursive=True)
    memory.pipe("/tables/cats/pets.csv", CSV.encode())
    buffer = io.BytesIO()
    pq.write_table(pa.table(COLUMNS), buffer)
    memory.pipe("/tables/cats/pets.parquet", buffer.getvalue())
    try:
        for name in ("pets.csv", "pets.parquet"):
            table = read_table(f"memory://tables/cats/{name}")
            assert np.array_equal(open_photo(table.photos[2]).rgb_u8, open_photo(cats / "cat-1/0.png").rgb_u8)
        memory.rm("/tables/cats/cat-1/0.png")
        with pytest.raises(UnreadablePhoto, match=r"memory:///?tables/cats/cat-1/0\.png: cannot be read"):
            open_photo(table.photos[2])
    finally:
        memory.store.clear()


def test_photos_of_a_table_may_be_in_another_folder(cats: Path, tmp_path: Path):
    (tmp_path / "pets.csv").write_text(CSV)
    table = DataSpec((f"table:{tmp_path / 'pets.csv'}:{cats}",)).read()
    assert [str(photo) for photo in table.photos] == [str(cats / path) for path, *_ in ROWS]
    assert table.names == ("pets/cat-0", "pets/cat-1")


def test_collection_is_the_root_of_the_identity():
    columns = {"path": ["a", "b", "c"], "identity": ["Mia", "Mia", "Tom"], "collection": ["cats", "dogs", None]}
    table = read_table(columns)
    assert table.names == ("cats/Mia", "dogs/Mia", "table/Tom")
    assert [str(photo) for photo in table.photos] == ["a", "b", "c"]


def test_tables_keep_their_columns_when_they_are_joined(cats: Path):
    (cats / "pets.csv").write_text(CSV)
    table = DataSpec((str(cats), str(cats / "pets.csv"))).read()
    assert [str(date) for date in table.columns["date"]] == ["NaT"] * 4 + [row[3] for row in ROWS]
    assert table.columns["species"].tolist() == [None] * 4 + ["cat"] * 4


# Splits


def dated() -> IdentityTable:
    """Twenty photos of four identities, one a day, and two encounters of each."""
    rows = range(20)
    return read_table(
        {
            "path": [f"{row}.jpg" for row in rows],
            "identity": [f"{row % 4}" for row in rows],
            "date": [f"2026-05-{row + 1:02d}" for row in rows],
            "encounter": [f"{row // 10}" for row in rows],
        }
    )


def test_split_by_date_trains_on_the_past_and_tests_on_the_future():
    table = dated()
    split = split_photos(table, "date", validation=0.25, test=0.25)
    sides = {side: split.select(table, side).columns["date"] for side in ("train", "validation", "test")}
    assert {side: len(dates) for side, dates in sides.items()} == {"train": 10, "validation": 5, "test": 5}
    assert sides["train"].max() < sides["validation"].min()
    assert sides["validation"].max() < sides["test"].min()


def test_encounter_stays_on_one_side():
    table = dated()
    split = split_photos(table, "encounter", validation=0.25, test=0.25)
    assert len(split.train + split.validation + split.test) == 8
    _, codes = photo_groups(table, "encounter")
    paths = {code: {str(table.photos[row]) for row in np.flatnonzero(codes == code)} for code in set(codes.tolist())}
    for side in ("train", "validation", "test"):
        on_side = {str(photo) for photo in split.select(table, side).photos}
        assert all(group <= on_side or not group & on_side for group in paths.values())
    days = read_table(table.to_pandas().drop(columns="encounter"))
    assert len(photo_groups(days, "encounter")[0]) == 20, "without a column, an identity's photos of a day"


def test_column_split_says_the_sides():
    columns = {"path": list("abcdefgh"), "identity": list("MMTTJJRR"), "split": ["train", "test"] * 4}
    table = read_table(columns)
    split = split_photos(table, "split", validation=0.5)
    assert {str(photo) for photo in split.select(table, "test").photos} == set("bdfh")
    assert {str(photo) for photo in split.select(table, "train", "validation").photos} == set("aceg")
    assert len(split.select(table, "validation").names) == 2
    with pytest.raises(BadDataset, match="the column split says 'maybe' of table/J, not train, val or test"):
        split_photos(read_table(columns | {"split": ["maybe"] * 8}), "split")


def test_split_by_a_column_that_is_missing_says_so():
    table = read_table({"path": ["a", "b"], "identity": ["M", "T"], "date": ["2026-01-01", None]})
    with pytest.raises(BadDataset, match="1 photos have no date, the first b"):
        split_photos(table, "date")
    with pytest.raises(BadDataset, match=r"splitting by split needs a column split; .*the data have date"):
        split_photos(table, "split")


# Hugging Face's data sets


def test_hugging_face_dataset_is_read_without_decoding(cats: Path):
    import datasets

    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["Mia", "Tom"]),
            "date": datasets.Value("string"),
        }
    )
    rows = {"image": [str(cats / row[0]) for row in ROWS], "label": [1, 1, 0, 0], "date": [row[3] for row in ROWS]}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    embedded = dataset.map(lambda row: row, keep_in_memory=True)
    for each in (dataset, embedded, dataset.select([3, 2, 1, 0])):
        table = read_table(each, name="pets")
        assert table.names == ("pets/Mia", "pets/Tom")
        assert table.photos_per_identity.tolist() == [2, 2]
        pixels = {open_photo(photo).rgb_u8.tobytes() for photo in table.photos[:2]}
        assert pixels == {open_photo(cats / row[0]).rgb_u8.tobytes() for row in ROWS[2:]}
    crops = read_crops(read_table(dataset), Preprocessing(size_px=32, resize_px=32))
    assert len(crops.table) == 4
    with pytest.raises(BadDataset, match="the data set has no column of images; it has label, date"):
        read_table(dataset.remove_columns("image"))
