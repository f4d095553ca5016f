"""Photos in tar and Parquet shards: what is packed is read back, and foreign and damaged shards."""

import io
import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from familiar.core.errors import BadDataset, CannotWrite, FamiliarError, UnreadablePhoto
from familiar.datasets.folders import DataSpec, IdentityTable, open_photo, scan_folders
from familiar.datasets.shards import packing, parquet
from familiar.datasets.shards.packing import ShardFormat, pack
from familiar.datasets.shards.parquet import ParquetPhoto
from familiar.datasets.shards.scanning import name_of, rows_by_shard, scan_shards
from familiar.datasets.shards.tar import INDEX_SUFFIX, TarPhoto
from familiar.loading.crops import read_table
from familiar.photos.preprocessing import Preprocessing

FORMATS: list[ShardFormat] = ["tar", "parquet"]
SMALL = Preprocessing(size_px=32, resize_px=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five identities of one to five photos, in three formats; one name has a dot, one an accent."""
    root = tmp_path_factory.mktemp("photos") / "cats"
    generator = np.random.default_rng(0)
    for count, (identity, suffix) in enumerate(
        [("a", "jpg"), ("b.c", "png"), ("d", "webp"), ("É", "png"), ("f", "jpg")], start=1
    ):
        (root / identity).mkdir(parents=True)
        for number in range(count):
            pixels = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / identity / f"photo.{number}.{suffix}")
    return root


@pytest.fixture(scope="module")
def table(folder: Path) -> IdentityTable:
    return DataSpec((str(folder),)).read()


def by_identity(location: str, ignored: Counter[str] | None = None) -> dict[str, list[TarPhoto | ParquetPhoto]]:
    """Return the photos of each identity in shards."""
    listed = scan_shards(location, Counter() if ignored is None else ignored)
    photos: dict[str, list[TarPhoto | ParquetPhoto]] = {}
    for photo, label in zip(listed.photos, listed.labels, strict=True):
        photos.setdefault(listed.names[label].partition("/")[2], []).append(photo)
    return photos


def photo_bytes(width: int = 8) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, 8), (200, 100, 50)).save(buffer, "PNG")
    return buffer.getvalue()


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(("format_", "photos"), [("tar", 2), ("parquet", 1)])
def test_name_that_is_not_utf8_does_not_stop_the_packing(tmp_path: Path, format_: ShardFormat, photos: int):
    for name in ("a.png", "b\udcff.png"):
        (tmp_path / "cats" / "Tom").mkdir(parents=True, exist_ok=True)
        (tmp_path / "cats" / "Tom" / name).write_bytes(photo_bytes(8 + len(name)))
    packed = pack(scan_folders(tmp_path / "cats"), tmp_path / "packed", format=format_)
    assert packed.photos == photos
    assert [str(error).rpartition(": ")[2] for error in packed.skipped] == [
        "its name is not UTF-8, and Parquet stores no others; rename it, or pack into tar files"
    ] * (2 - photos)


@pytest.mark.parametrize("format_", FORMATS)
def test_shards_are_the_same_data_set_as_the_folder(format_: ShardFormat, table: IdentityTable, tmp_path: Path):
    packed = pack(table, tmp_path / "cats", format=format_, shard_bytes=10_000)
    assert len(packed.shards) > 2
    assert packed.photos == len(table)
    read = DataSpec((str(tmp_path / "cats"),)).read()
    assert read.names == table.names
    assert [photo.name for photo in read.photos] == [photo.name for photo in table.photos]
    assert read.labels.tolist() == table.labels.tolist()
    for stored, file in zip(read.photos, table.photos, strict=True):
        assert isinstance(file, Path)
        assert not isinstance(stored, Path)
        assert stored.read_bytes() == file.read_bytes()
        assert np.array_equal(open_photo(stored).rgb_u8, open_photo(file).rgb_u8)
    assert read_table(read, SMALL).contents == read_table(table, SMALL).contents


@pytest.mark.parametrize("format_", FORMATS)
def test_order_depends_on_the_seed_alone(format_: ShardFormat, table: IdentityTable, tmp_path: Path):
    contents = []
    for folder, seed in (("first", 1), ("again", 1), ("other", 2)):
        shards = pack(table, tmp_path / folder, format=format_, shard_bytes=10_000, seed=seed).shards
        contents.append([shard.read_bytes() for shard in shards])
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


def test_index_says_what_the_tar_file_says(table: IdentityTable, tmp_path: Path):
    packed = pack(table, tmp_path / "cats", shard_bytes=10_000)
    with_index = by_identity(str(tmp_path / "cats"))
    for shard in packed.shards:
        Path(f"{shard}{INDEX_SUFFIX}").unlink()
    without = by_identity(str(tmp_path / "cats"))
    assert with_index.keys() == without.keys()
    for identity, photos in with_index.items():
        for indexed, scanned in zip(photos, without[identity], strict=True):
            assert isinstance(scanned, TarPhoto)
            assert (scanned.start, scanned.size_bytes) == (indexed.start, indexed.size_bytes)
            assert not scanned.sha256
            assert scanned.content_sha256 == indexed.sha256


@pytest.mark.parametrize("format_", FORMATS)
def test_reads_shards_behind_a_url(format_: ShardFormat, table: IdentityTable, tmp_path: Path):
    packed = pack(table, tmp_path / "cats", format=format_)
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "cats"), "/bucket/cats", recursive=True)
    try:
        read = DataSpec(("memory://bucket/cats",)).read()
        assert read.names == table.names
        assert len(read) == packed.photos
        assert np.array_equal(open_photo(read.photos[0]).rgb_u8, open_photo(table.photos[0]).rgb_u8)
        memory.rm("/bucket/cats", recursive=True)
        with pytest.raises(UnreadablePhoto, match=r"memory://.*cannot be read") if format_ == "tar" else _no_error():
            read.photos[0].read_bytes()
        with pytest.raises(BadDataset, match="no shard here"):
            DataSpec(("memory://bucket/cats",)).read()
    finally:
        memory.store.clear()


def _no_error():
    """A Parquet file's group of rows stays in memory."""
    import contextlib

    return contextlib.nullcontext()


def test_unknown_kind_of_url_is_named():
    with pytest.raises(FamiliarError, match=r"nowhere://bucket.*[Pp]rotocol"):
        DataSpec(("nowhere://bucket/cats",)).read()


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://bucket/people", "people"),
        ("s3://bucket/people/00001.tar", "people"),
        ("gs://bucket/people/*.tar", "people"),
        ("/data/people/", "people"),
        ("/data/people/part-*.parquet", "people"),
    ],
)
def test_source_is_named_like_its_folder(location: str, name: str):
    assert name_of(location) == name


def test_pattern_and_single_shard(table: IdentityTable, tmp_path: Path):
    packed = pack(table, tmp_path / "cats", shard_bytes=10_000)
    all_photos = len(DataSpec((str(tmp_path / "cats" / "0000*.tar"),)).read())
    assert all_photos == packed.photos
    assert 0 < len(DataSpec((str(packed.shards[0]),)).read()) < all_photos


@pytest.mark.parametrize(
    "files",
    [
        {"7.jpg": photo_bytes(), "7.cls": b"mia\n"},
        {"7.txt": b"mia", "7.png": photo_bytes()},
        {"7.json": json.dumps({"label": "mia"}).encode(), "7.jpg": photo_bytes()},
        {"7.json": json.dumps({"identity": "mia", "label": 3}).encode(), "7.jpg": photo_bytes()},
        {"mia/7.jpg": photo_bytes()},
        {"x/7.jpg": photo_bytes(), "x/7.cls": b"mia"},
    ],
)
def test_reads_labels_as_others_write_them(files: dict[str, bytes], tmp_path: Path):
    write_tar(tmp_path / "0.tar", files)
    ((identity, (photo,)),) = by_identity(str(tmp_path)).items()
    assert identity == "mia"
    assert photo.read_bytes() == photo_bytes()


def test_counts_what_is_skipped(tmp_path: Path):
    files = {"a.txt": b"no photo", "b.jpg": photo_bytes(), "mia/c.jpg": photo_bytes()}
    write_tar(tmp_path / "0.tar", files)
    ignored = Counter[str]()
    assert list(by_identity(str(tmp_path), ignored)) == ["mia"]
    assert ignored == {"samples without a photo": 1, "photos without an identity": 1}


def test_reads_hugging_face_columns(tmp_path: Path):
    image = pa.array([{"bytes": photo_bytes(), "path": None}] * 3)
    features = {"label": {"names": ["mia", "tom"], "_type": "ClassLabel"}}
    data = pa.table({"image": image, "label": pa.array([1, 0, 1])}).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    pq.write_table(data, tmp_path / "train.parquet", row_group_size=2)
    photos = by_identity(str(tmp_path))
    assert {identity: len(rows) for identity, rows in photos.items()} == {"mia": 1, "tom": 2}
    assert all(photo.read_bytes() == photo_bytes() for rows in photos.values() for photo in rows)


@given(cut=st.integers(1, 4000))
@settings(max_examples=60)
def test_tar_that_is_cut_short_is_refused_or_complete(cut: int, tmp_path_factory: pytest.TempPathFactory):
    """Without an index, a cut between two samples cannot be noticed; photos listed are whole."""
    tmp_path = tmp_path_factory.mktemp("cut")
    shard = write_tar(tmp_path / "0.tar", {f"mia/{number}.png": photo_bytes(8 + number) for number in range(3)})
    data = shard.read_bytes()[: 3 * 1024]
    shard.write_bytes(data[: min(cut, len(data))])
    try:
        (photos,) = by_identity(str(tmp_path)).values()
    except BadDataset:
        return
    assert [photo.read_bytes() for photo in photos] == [photo_bytes(8 + number) for number in range(len(photos))]


def test_shard_cut_in_half_is_named_by_its_index(table: IdentityTable, tmp_path: Path):
    shard = pack(table, tmp_path / "cats").shards[0]
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    with pytest.raises(BadDataset, match=r"00000\.tar: has [\d,]+ bytes, but its index says"):
        DataSpec((str(tmp_path / "cats"),)).read()


def test_parquet_cut_in_half_is_named(table: IdentityTable, tmp_path: Path):
    shard = pack(table, tmp_path / "cats", format="parquet").shards[0]
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    with pytest.raises(BadDataset, match=r"00000\.parquet: is no Parquet file, or a damaged one"):
        DataSpec((str(tmp_path / "cats"),)).read()


def test_shard_that_became_shorter_gives_unreadable_photos(table: IdentityTable, tmp_path: Path):
    shard = pack(table, tmp_path / "cats").shards[0]
    read = DataSpec((str(tmp_path / "cats"),)).read()
    shard.write_bytes(shard.read_bytes()[:600])
    with pytest.raises(UnreadablePhoto, match="has become shorter"):
        list(map(open_photo, read.photos))


def test_compressed_tar_is_refused(tmp_path: Path):
    with tarfile.open(tmp_path / "0.tar", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("mia/1.jpg"), io.BytesIO())
    with pytest.raises(BadDataset, match="is not a tar file, or a damaged or compressed one"):
        by_identity(str(tmp_path))


@pytest.mark.parametrize("columns", [{"identity": ["mia"]}, {"image": [b"1"]}])
def test_missing_column_is_named(columns: dict[str, list[object]], tmp_path: Path):
    pq.write_table(pa.table(columns), tmp_path / "0.parquet")
    with pytest.raises(BadDataset, match=r"has no column of .*must be named (path|identity)"):
        by_identity(str(tmp_path))


@pytest.mark.parametrize("format_", FORMATS)
def test_unreadable_photo_is_skipped_with_its_reason(format_: ShardFormat, folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "cats")
    (tmp_path / "cats" / "a" / "photo.0.jpg").write_bytes(b"nothing")
    packed = pack(DataSpec((str(tmp_path / "cats"),)).read(), tmp_path / "shards", format=format_)
    assert [str(error) for error in packed.skipped] == [f"{tmp_path / 'cats' / 'a' / 'photo.0.jpg'}: is not a photo"]
    assert packed.photos == 14


def test_drawn_photos_become_png(tmp_path: Path):
    table = DataSpec(("synthetic:cats:2x2",)).read()
    pack(table, tmp_path / "cats")
    read = DataSpec((str(tmp_path / "cats"),)).read()
    assert np.array_equal(open_photo(read.photos[0]).rgb_u8, open_photo(table.photos[0]).rgb_u8)


def test_refuses_a_folder_with_shards_and_several_roots(table: IdentityTable, tmp_path: Path):
    pack(table, tmp_path / "cats")
    with pytest.raises(BadDataset, match="contains shards already"):
        pack(table, tmp_path / "cats", format="parquet")
    with pytest.raises(BadDataset, match="are of 2 sources"):
        pack(DataSpec(("synthetic:cats:2x2", "synthetic:dogs:2x2")).read(), tmp_path / "both")


def test_full_disk_leaves_complete_shards_only(table: IdentityTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write, written = packing.write_atomically, []

    def write_until_full(path: Path, data: bytes) -> None:
        if len(written) >= 2:
            raise OSError(28, "No space left on device")
        written.append(path)
        write(path, data)

    monkeypatch.setattr(packing, "write_atomically", write_until_full)
    with pytest.raises(CannotWrite, match="No space left on device"):
        pack(table, tmp_path / "cats", shard_bytes=10_000)
    assert sorted(path.name for path in (tmp_path / "cats").iterdir()) == ["00000.tar", "00000.tar.index.json"]


def test_each_group_of_a_parquet_shard_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """For the contents and once more for the pixels, though identities are scattered over the groups."""
    monkeypatch.setattr(packing, "ROWS_PER_GROUP", 4)
    pack(DataSpec(("synthetic:cats:12x4",)).read(), tmp_path / "shards", format="parquet")
    parquet._group_bytes.cache_clear()
    read = read_table(DataSpec((str(tmp_path / "shards"),)).read(), SMALL)
    assert len(read.table) == 48
    assert parquet._group_bytes.cache_info().misses == 2 * 48 // 4


@pytest.mark.parametrize("format_", FORMATS)
def test_rows_by_shard_are_in_the_order_of_the_file(format_: ShardFormat, table: IdentityTable, tmp_path: Path):
    packed = pack(table, tmp_path / "cats", format=format_, shard_bytes=10_000)
    read = DataSpec((str(tmp_path / "cats"),)).read()
    shards = rows_by_shard(read.photos)
    assert len(shards) == len(packed.shards)
    assert sorted(np.concatenate(shards).tolist()) == list(range(len(read)))
    for path, rows in zip(packed.shards, shards, strict=True):
        positions = [photo.position for photo in (read.photos[row] for row in rows) if photo.shard == str(path)]
        assert positions == sorted(positions)
        assert len(positions) == len(rows)
    with pytest.raises(ValueError, match="is not in a shard"):
        rows_by_shard(table.photos)


def test_parquet_that_decodes_to_far_more_than_the_file_is_refused(tmp_path: Path) -> None:
    """Values that repeat are written once: a few kilobytes can be millions of rows, or terabytes of photos."""

    def write(rows: int, photo: bytes) -> str:
        numbers = pa.array(np.zeros(rows, np.int32))
        columns = {
            name: pa.DictionaryArray.from_arrays(numbers, pa.array([value]))
            for name, value in {"image": photo, "identity": "Mia"}.items()
        }
        pq.write_table(pa.table(columns), tmp_path / "bomb.parquet", store_schema=False)
        return str(tmp_path / "bomb.parquet")

    with pytest.raises(BadDataset, match="1,000,000 rows are more than its bytes can hold"):
        parquet.parquet_rows(write(1_000_000, b"photo"))
    photos = parquet.parquet_rows(write(300, bytes(2**20))).photos
    assert photos is not None
    with pytest.raises(UnreadablePhoto, match="its photos have far more bytes than the file"):
        photos[0].read_bytes()


@pytest.mark.parametrize("as_parquet", [False, True], ids=["tar", "parquet"])
def test_identities_that_look_the_same_are_one(tmp_path: Path, caplog: pytest.LogCaptureFixture, as_parquet: bool):
    names = ("Jos\u00e9", "Jose\u0301", "Mia")
    if as_parquet:
        pq.write_table(pa.table({"image": [photo_bytes()] * 3, "identity": names}), tmp_path / "pets.parquet")
    else:
        write_tar(tmp_path / "pets.tar", {f"{name}/{name}.png": photo_bytes() for name in names})
    table = DataSpec((str(tmp_path),)).read()
    assert [name.partition("/")[2] for name in table.names] == ["Jos\u00e9", "Mia"]
    assert table.photos_per_identity.tolist() == [2, 1]
    assert r"'Jos\xe9' and 'Jose\u0301'" in caplog.text or r"'Jose\u0301' and 'Jos\xe9'" in caplog.text
