"""Data sets with their own layout, and those read as ordinary folders, through `DataSpec`."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadDataset
from familiar.datasets.folders import DataSpec, IdentityTable, open_photo
from familiar.datasets.idx import IdxPhoto
from familiar.datasets.inspection import inspect_table
from familiar.datasets.inspection_page import render
from support.idx_files import idx_bytes, write_mnist


def put(path: Path, content: bytes = b"never decoded here") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def read(*sources: Path | str, **limits: object) -> IdentityTable:
    return DataSpec(tuple(map(str, sources)), **limits).read()


# MNIST


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    return write_mnist(tmp_path / "digits", {"train": 57, "t10k": 23})


def test_mnist_train_and_test_are_separate_sources(mnist: Path) -> None:
    train, test, both = (
        read(*sources)
        for sources in (
            [f"mnist:{mnist}"],
            [f"mnist:{mnist}:test"],
            [f"mnist:{mnist}", f"mnist:{mnist}:test"],
        )
    )
    assert train.names == tuple(f"mnist/{digit}" for digit in range(10))
    assert test.names == tuple(f"mnist-test/{digit}" for digit in range(10))
    assert (len(train), len(test), len(both), len(both.names)) == (57, 23, 80, 20)
    assert train.photos_per_identity.tolist() == [6] * 7 + [5] * 3
    assert len({train.fingerprint, test.fingerprint, both.fingerprint}) == 3
    for table in (train, test):
        for photo, label in zip(table.photos, table.labels, strict=True):
            assert isinstance(photo, IdxPhoto)
            assert photo.index % 10 == int(table.names[label].rpartition("/")[2])


def test_mnist_supports_limits_lists_and_mixing(mnist: Path, tmp_path: Path) -> None:
    put(tmp_path / "cats" / "Tom" / "1.jpg")
    table = read(f"mnist:{mnist}", tmp_path / "cats", identities=("3", "8"), max_photos=4)
    assert table.names == ("cats/Tom", "mnist/3", "mnist/8")
    assert table.photos_per_identity.tolist() == [1, 4, 4]
    indices = [photo.index for photo in read(f"mnist:{mnist}", max_photos=3).photos if isinstance(photo, IdxPhoto)]
    assert set(range(30)) - set(indices), "a share must not be the first ones by number"
    assert len(read(f"mnist:{mnist}", max_identities=4).names) == 4


def test_mnist_is_invariant_to_path_and_compression(mnist: Path, tmp_path: Path) -> None:
    before = read(f"mnist:{mnist}")
    moved = write_mnist(tmp_path / "elsewhere" / "raw", {"train": 57}, packed=False)
    after = read(f"mnist:{moved}")
    assert [photo.name for photo in after.photos] == [photo.name for photo in before.photos]
    assert after.fingerprint == before.fingerprint
    for photo, moved_photo in zip(before.photos[::7], after.photos[::7], strict=True):
        np.testing.assert_array_equal(open_photo(photo).rgb_u8, open_photo(moved_photo, min_side_px=8).rgb_u8)


def test_mnist_can_be_inspected(mnist: Path) -> None:
    images = np.random.default_rng(57).integers(0, 256, (57, 28, 28), np.uint8)
    images[3] = images[0]  # a zero labeled as three
    images[14] = 7
    put(mnist / "train-images-idx3-ubyte", idx_bytes(images))
    inspection = inspect_table(read(f"mnist:{mnist}"))
    document = inspection.as_dict()
    assert document["stored_as"] == {"IDX gray": 57}
    assert (document["width_px"], document["height_px"], document["grayscale"]) == ((28, 28, 28),) * 2 + (57,)
    assert document["blank"] == ["mnist:train/4/00000014"]
    (twice,) = document["duplicates"]["exact_across_identities"]
    assert twice["photos"] == ["mnist:train/0/00000000", "mnist:train/3/00000003"]
    assert twice["identities"] == ["mnist/0", "mnist/3"]
    page = render(inspection)
    assert page.count("<img") >= 9
    assert "<h1>Inspection of <bdi>mnist</bdi></h1>" in page


@pytest.mark.parametrize("text", ["mnist:", "mnist::test", "mnist:gone", "mnist:gone:test"])
def test_rejects_missing_mnist_folder_with_syntax(text: str) -> None:
    with pytest.raises(BadDataset, match="no such folder; write MNIST as mnist:FOLDER or mnist:FOLDER:test"):
        read(text)


def test_rejects_duplicate_mnist_source(mnist: Path) -> None:
    with pytest.raises(BadDataset, match="two of the sources are named 'mnist'"):
        read(f"mnist:{mnist}", f"mnist:{mnist}/.")


def test_rejects_truncated_mnist_file_by_name(mnist: Path) -> None:
    put(mnist / "train-images-idx3-ubyte.gz", (mnist / "train-images-idx3-ubyte.gz").read_bytes()[:-9])
    with pytest.raises(BadDataset, match=r"digits/train-images-idx3-ubyte\.gz: not a complete idx file"):
        read(f"mnist:{mnist}")
    read(f"mnist:{mnist}:test")


@pytest.mark.parametrize("name", ["mnist:mine", "petface:a:b", "synthetic:cats:2x2"])
def test_dot_prefix_reads_folder_with_source_syntax_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / name / "Tom" / "1.jpg")
    monkeypatch.chdir(tmp_path)
    assert read(f"./{name}").names == (f"{name}/Tom",)


@pytest.mark.parametrize("name", ["mnist", "petface", "synthetic", "cats:test"])
def test_name_without_source_syntax_is_read_as_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / name / "Tom" / "1.jpg")
    monkeypatch.chdir(tmp_path)
    assert read(name).names == (f"{name}/Tom",)


@pytest.mark.slow
@pytest.mark.shared_data
def test_mnist_has_published_counts(shared_data: Path) -> None:
    train, test = (read(f"mnist:{shared_data / 'mnist'}{part}") for part in ("", ":test"))
    assert (len(train), len(train.names), len(test), len(test.names)) == (60_000, 10, 10_000, 10)


# PetFace

SPLIT = {
    "train.csv": "filename,label\ncat/000000/00.png,0\ncat/000000/01.png,0\ncat/000003/00.png,1\n",
    "val.txt": "cat/000001/00.png\ncat/000001/01.png\n",
    "test.txt": "cat/000002/01.png\r\n\r\n",
    "reidentification.csv": "filename,label\ncat/000000/02.png,0\n",
}


@pytest.fixture
def petface(tmp_path: Path) -> Path:
    """Four cats of three photos and a dog, as the authors' archives unpack."""
    root = tmp_path / "PetFace"
    for identity in range(4):
        for photo in range(3):
            put(root / "images" / "cat" / f"{identity:06d}" / f"{photo:02d}.png")
    put(root / "images" / "dog" / "000000" / "00.png")
    for name, text in SPLIT.items():
        put(root / "split" / "cat" / name, text.encode())
    put(root / "annotations" / "cat.csv", b"id,breed\n")
    return root


def photos_of(table: IdentityTable) -> list[str]:
    return [f"{table.names[label]}/{photo.name}" for photo, label in zip(table.photos, table.labels, strict=True)]


def test_petface_species_contains_all_its_photos(petface: Path) -> None:
    assert len(read(f"petface:{petface}:cat")) == 12
    both = read(f"petface:{petface}:cat", f"petface:{petface}:dog")
    assert len(both) == 13
    assert both.names[0] == "petface-cat/000000"
    assert both.names[-1] == "petface-dog/000000"


@pytest.mark.parametrize(
    ("part", "photos"),
    [
        ("train", ["000000/00.png", "000000/01.png", "000003/00.png"]),
        ("val", ["000001/00.png", "000001/01.png"]),
        ("test", ["000002/01.png"]),
        ("reidentification", ["000000/02.png"]),
    ],
)
def test_petface_part_contains_listed_photos(petface: Path, part: str, photos: list[str]) -> None:
    table = read(f"petface:{petface}:cat:{part}")
    assert photos_of(table) == [f"petface-cat/{photo}" for photo in photos]
    assert table.ignored == {}


def test_petface_part_accepts_txt_or_csv_list(petface: Path) -> None:
    listing = petface / "split" / "cat" / "val.txt"
    before = photos_of(read(f"petface:{petface}:cat:val"))
    put(
        listing.with_suffix(".csv"),
        b"\xef\xbb\xbffilename,label\n" + b"".join(line + b",7\n" for line in listing.read_bytes().splitlines()),
    )
    listing.unlink()
    assert photos_of(read(f"petface:{petface}:cat:val")) == before


def test_petface_folder_name_may_contain_colon(petface: Path) -> None:
    moved = petface.rename(petface.with_name("a:train"))
    assert len(read(f"petface:{moved}:cat:train")) == 3
    assert len(read(f"petface:{moved}:cat")) == 12


def test_reports_listed_petface_photos_not_on_disk(petface: Path, caplog: pytest.LogCaptureFixture) -> None:
    (petface / "images" / "cat" / "000000" / "01.png").unlink()
    (petface / "images" / "cat" / "000003" / "00.png").unlink()
    table = read(f"petface:{petface}:cat:train")
    assert photos_of(table) == ["petface-cat/000000/00.png"]
    assert table.ignored == {"listed photos not found": 2}
    (message,) = caplog.messages
    assert message.endswith("train.csv: 2 photos not found: 000000/01.png, 000003/00.png")


def test_rejects_petface_list_without_matching_photo(petface: Path) -> None:
    put(petface / "split" / "cat" / "test.txt", b"cat/000009/00.png\ncat/000008/00.png\n")
    with pytest.raises(BadDataset, match=r"test\.txt: none of its 2 photos exists, for example 000008/00\.png"):
        read(f"petface:{petface}:cat:test")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dog/000000/00.png", r"test\.txt:1: expected cat/IDENTITY/PHOTO, got 'dog/000000/00\.png'"),
        ("cat/000000/00.png\ncat/00.png", r"test\.txt:2: expected cat/IDENTITY/PHOTO, got 'cat/00\.png'"),
        ("cat/../000000/00.png", r"test\.txt:1: expected cat/IDENTITY/PHOTO"),
        ("id,path", r"test\.txt:1: expected cat/IDENTITY/PHOTO, got 'id'"),
        ("", r"test\.txt: lists no photo"),
        ("filename,label\n", r"test\.txt: lists no photo"),
    ],
)
def test_rejects_malformed_petface_list(petface: Path, text: str, message: str) -> None:
    put(petface / "split" / "cat" / "test.txt", text.encode())
    with pytest.raises(BadDataset, match=message):
        read(f"petface:{petface}:cat:test")


def test_rejects_binary_or_missing_petface_list(petface: Path) -> None:
    put(petface / "split" / "cat" / "test.txt", bytes(range(256)))
    with pytest.raises(BadDataset, match=r"test\.txt: cannot be read"):
        read(f"petface:{petface}:cat:test")
    (petface / "split" / "cat" / "test.txt").unlink()
    with pytest.raises(BadDataset, match=r"split/cat: contains no test\.csv or test\.txt"):
        read(f"petface:{petface}:cat:test")


def petface_words(folder: str) -> Iterable[str]:
    return (f"petface:{folder}{rest}" for rest in ("", ":", ":fox", "::train", ":fox:train", ":cat:training"))


@pytest.mark.parametrize("text", ["petface:", "petface:cat", "petface::cat", *petface_words("PetFace")])
def test_rejects_invalid_petface_source_with_syntax(petface: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(petface.parent)
    with pytest.raises(BadDataset, match=r"write PetFace as petface:FOLDER:SPECIES.*may end in :train, :val, :test"):
        read(text)


# Data sets read as ordinary folders


def test_reads_casia_webface_as_folder(tmp_path: Path) -> None:
    for identity, photos in ((45, 3), (99, 40), (6573313, 12)):
        for photo in range(1, photos + 1):
            put(tmp_path / "casia-webface" / f"{identity:07d}" / f"{photo:03d}.jpg")
    table = read(tmp_path / "casia-webface", max_photos=10)
    assert table.names == tuple(f"casia-webface/{name}" for name in ("0000045", "0000099", "6573313"))
    assert table.photos_per_identity.tolist() == [3, 10, 10]
