"""Readers of data sets: lists, tables, idx files and shards."""

import gzip
import io
import json
import tarfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.mutators import CSV_TOKENS, bytes_mutator, json_mutator, repair_tar, token_mutator
from fuzzing.reader import Read, Reader, reading_file

PAIRS = b"2\t1\nAnn\t1\t2\nAnn\t1\tBob\t1\nBob\t1\t2\nBob\t2\tAnn\t2\n"


def _table(folder: Path) -> Any:
    from familiar.datasets.folders import IdentityTable

    photos = tuple(folder / "lfw" / name / f"{name}_000{number}.jpg" for name in ("Ann", "Bob") for number in (1, 2))
    return IdentityTable(photos, np.array([0, 0, 1, 1]), ("lfw/Ann", "lfw/Bob"))


def _prepare_pairs(folder: Path) -> Read:
    from familiar.datasets.pairs import read_lfw_folds, read_lfw_pairs

    table, path = _table(folder), folder / "pairs.txt"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_lfw_pairs(path, table)
        read_lfw_folds(path, table)

    return read


def _prepare_people(folder: Path) -> Read:
    from familiar.datasets.folders import read_identity_list
    from familiar.datasets.pairs import read_lfw_people

    path = folder / "people.txt"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_identity_list(path)
        read_lfw_people(path)

    return read


def _prepare_attributes(folder: Path) -> Read:
    from familiar.datasets.attributes import read_attributes

    table = _table(folder)
    return reading_file(folder / "attributes.csv", lambda path: read_attributes(path, table))


def _prepare_petface(folder: Path) -> Read:
    from familiar.datasets.sources import parse_sources

    (folder / "petface" / "split" / "cat").mkdir(parents=True)
    for number in ("000", "001"):
        (folder / "petface" / "images" / "cat" / number).mkdir(parents=True)
        (folder / "petface" / "images" / "cat" / number / "00.png").write_bytes(b"photo")

    def scan(_: Path) -> None:
        for source in parse_sources([f"petface:{folder / 'petface'}:cat:train"]).values():
            source(Counter(), ())

    return reading_file(folder / "petface" / "split" / "cat" / "train.csv", scan)


def _prepare_table(folder: Path, suffix: str) -> Read:
    from familiar.datasets.folders import read_table

    return reading_file(folder / f"photos{suffix}", lambda path: list(read_table(path).photos))


def _prepare_idx(folder: Path) -> Read:
    from familiar.datasets.idx import read_idx

    path = folder / "images"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_idx(path, 1 if data[3:4] == b"\1" else 3)

    return read


def _idx_seeds() -> list[bytes]:
    from support.idx_files import idx_bytes

    images, labels = idx_bytes(np.zeros((3, 4, 4), np.uint8)), idx_bytes(np.arange(9, dtype=np.uint8))
    return [images, labels, gzip.compress(images, mtime=0)]


def _prepare_tar(folder: Path) -> Read:
    from familiar.datasets.shards.tar import scan_tar

    path = folder / "shard.tar"

    def scan(path: Path) -> None:
        for _, photo in scan_tar(str(path), Counter()):
            photo.read_bytes()

    return reading_file(path, scan)


def _tar(format_number: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_number) as tar:
        for name, content in (
            ("a.jpg", b"photo"),
            ("a.json", b'{"identity": "Mia", "name": "x.jpg"}'),
            ("b.png", b"photo"),
            ("b.cls", b"Tom"),
            ("Rex/" + "c" * 120 + ".jpg", b"photo"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _prepare_tar_index(folder: Path) -> Read:
    from familiar.datasets.shards.tar import INDEX_SUFFIX, scan_tar

    shard = folder / "shard.tar"
    shard.write_bytes(_tar())

    def scan(_: Path) -> None:
        for identity, photo in scan_tar(str(shard), Counter()):
            assert isinstance(identity, str)
            photo.read_bytes()
            str(photo)

    return reading_file(folder / f"shard.tar{INDEX_SUFFIX}", scan)


def _prepare_parquet(folder: Path) -> Read:
    from familiar.datasets.shards import parquet
    from familiar.datasets.shards.scanning import scan_shards

    def scan(path: Path) -> None:
        parquet._group_bytes.cache_clear()
        for photo in scan_shards(str(path), Counter()).photos:
            photo.read_bytes()

    return reading_file(folder / "shard.parquet", scan)


def _parquet_seeds() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = {"info": {"features": {"label": {"names": ["Mia", "Tom"]}}}}
    schema = pa.schema(
        [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())],
        metadata={"huggingface": json.dumps(names)},
    )
    rows = [{"image": {"bytes": b"photo", "path": "x.jpg"}, "label": label} for label in (0, 1, None)]
    plain = pa.table({"image": [b"photo", b"other"], "identity": ["Mia", "Tom"], "name": ["a.jpg", "b.jpg"]})
    files: list[bytes] = []
    for table in (pa.Table.from_pylist(rows, schema=schema), plain):
        for compression in ("none", "snappy"):
            buffer = io.BytesIO()
            pq.write_table(table, buffer, compression=compression)
            files.append(buffer.getvalue())
    return files


def _prepare_embedding_parts(folder: Path) -> Read:
    from familiar.integrations.ray.parts import count_rows, read_part

    def scan(path: Path) -> None:
        count_rows(path)
        _, table = read_part(path)
        table.to_pydict()

    return reading_file(folder / "part.parquet", scan)


def _embedding_part() -> bytes:
    from tempfile import TemporaryDirectory

    from familiar.integrations.ray.parts import COLUMNS, write_part

    row = dict.fromkeys(COLUMNS) | {"photo": "a.jpg", "size_bytes": 5, "modified_ns": 7, "face": 1, "score": 0.5}
    row |= {"box_xyxy_px": [0.0, 0.0, 4.0, 4.0], "quality": 0.5, "embedding": [0.6, 0.8], "file_id": "f"}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "part.parquet"
        write_part(
            path,
            [row, row | {"face": None, "embedding": None, "error": "no face"}],
            {"space_id": "s", "embedding_dim": 2, "file_ids": ["f"], "detector": "none", "flip": False},
        )
        return path.read_bytes()


_csv = token_mutator(CSV_TOKENS)

READERS = {
    "pairs": Reader(_prepare_pairs, lambda: [PAIRS, b"2\n" + PAIRS[4:]], _csv),
    "people": Reader(
        _prepare_people, lambda: [b"2\n1\nAnn\t1\n2\nBob\t4\nCy\t1\n", b"1\nAnn\t2\n", b"Ann\nBob\n"], _csv
    ),
    "attributes": Reader(
        _prepare_attributes,
        lambda: [b"identity,age\nAnn,7\nBob,8\n", b"photo,light,age\nAnn/Ann_0001.jpg,dim,1\nBob_0002.jpg,,2\n"],
        _csv,
    ),
    "table": Reader(
        partial(_prepare_table, suffix=".csv"),
        lambda: [b"path,identity,box,date,split\na.jpg,Ann,1 2 30 40,2026-05-31,train\nb.jpg,Bob,,2026,\n"],
        _csv,
    ),
    "coco": Reader(
        partial(_prepare_table, suffix=".json"),
        lambda: [
            json.dumps(
                {
                    "images": [{"id": 1, "file_name": "a.jpg", "date_captured": "2026-05-31 10:00:00"}],
                    "annotations": [{"image_id": 1, "category_id": 2, "bbox": [1, 2, 30, 40], "identity": "Ann"}],
                    "categories": [{"id": 2, "name": "cat"}],
                }
            ).encode()
        ],
        json_mutator,
    ),
    "petface": Reader(_prepare_petface, lambda: [b"filename,label\ncat/000/00.png,0\ncat/001/00.png,1\n"], _csv),
    "idx": Reader(_prepare_idx, _idx_seeds, bytes_mutator),
    "tar": Reader(_prepare_tar, lambda: [_tar(), _tar(tarfile.GNU_FORMAT)], bytes_mutator, repair_tar),
    "tar-index": Reader(
        _prepare_tar_index,
        lambda: [json.dumps({"bytes": len(_tar()), "photos": [["Mia", "a.jpg", 1024, 5, "0" * 64]]}).encode()],
        json_mutator,
    ),
    "parquet": Reader(_prepare_parquet, _parquet_seeds, bytes_mutator),
    "embedding-parts": Reader(_prepare_embedding_parts, lambda: [_embedding_part()], bytes_mutator),
}
