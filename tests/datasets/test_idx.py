import gzip
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from familiar.core.errors import BadDataset, UnreadablePhoto
from familiar.datasets import idx
from familiar.datasets.idx import IdxPhoto, mnist_photos, read_idx
from support.idx_files import idx_bytes, write_mnist

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
anywhere = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
small_arrays = st.integers(1, 3).flatmap(
    lambda dimensions: arrays.arrays(
        np.uint8, arrays.array_shapes(min_dims=dimensions, max_dims=dimensions, max_side=9)
    )
)


def written(tmp_path: Path, content: bytes, name: str = "images-idx3-ubyte") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


# The format


def test_reads_bytes_in_row_order(tmp_path: Path) -> None:
    content = b"\0\0\x08\x02" + b"\0\0\0\x02" + b"\0\0\0\x03" + bytes([1, 2, 3, 254, 255, 0])
    array = read_idx(written(tmp_path, content), 2)
    assert array.tolist() == [[1, 2, 3], [254, 255, 0]]
    assert array.dtype == np.uint8
    assert not array.flags.writeable


@anywhere
@given(small_arrays, st.booleans(), st.sampled_from(["a-ubyte", "a-ubyte.gz"]))
def test_round_trip_ignores_file_suffix(tmp_path: Path, array: np.ndarray, packed: bool, name: str) -> None:
    content = idx_bytes(array)
    result = read_idx(written(tmp_path, gzip.compress(content) if packed else content, name), array.ndim)
    np.testing.assert_array_equal(result, array, strict=True)


def test_reads_array_in_several_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idx, "_CHUNK_BYTES", 7)
    for content in (idx_bytes(ARRAY), gzip.compress(idx_bytes(ARRAY))):
        np.testing.assert_array_equal(read_idx(written(tmp_path, content), 3), ARRAY)


# Damaged files: BadDataset, or the same array


@anywhere
@given(st.booleans(), st.data())
def test_flipped_byte_is_rejected_or_harmless(tmp_path: Path, packed: bool, data: st.DataObject) -> None:
    content = bytearray(gzip.compress(idx_bytes(ARRAY)) if packed else idx_bytes(ARRAY))
    position = data.draw(st.integers(0, (len(content) if packed else 16) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    message, result = "", None
    try:
        result = read_idx(written(tmp_path, bytes(content)), 3)
    except BadDataset as error:
        message = str(error)
    if result is None:
        assert message.startswith(f"{tmp_path / 'images-idx3-ubyte'}: not a complete idx file (")
        assert message.endswith("); download it again")
        assert "\n" not in message
    else:  # some bytes of a gzip header do not affect its content: time, operating system
        assert packed
        np.testing.assert_array_equal(result, ARRAY)


@anywhere
@given(st.booleans(), st.data())
def test_rejects_truncated_file(tmp_path: Path, packed: bool, data: st.DataObject) -> None:
    content = gzip.compress(idx_bytes(ARRAY)) if packed else idx_bytes(ARRAY)
    length = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(BadDataset, match="not a complete idx file"):
        read_idx(written(tmp_path, content[:length]), 3)


@anywhere
@given(st.binary(max_size=64))
def test_rejects_random_bytes(tmp_path: Path, content: bytes) -> None:
    for path in (written(tmp_path, content), written(tmp_path, gzip.compress(content))):
        with pytest.raises(BadDataset, match="not a complete idx file"):
            read_idx(path, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it begins with , not 00000803"),
        (b"\0\0\x08\x03\0\0", "it ends within its header"),
        (idx_bytes(ARRAY[0]), "it begins with 00000802, not 00000803"),
        (b"\0\0\x0d\x03" + idx_bytes(ARRAY)[4:], "it begins with 00000d03"),  # of floats
        (idx_bytes(ARRAY[:0]), "its header says 0 x 3 x 4"),
        (idx_bytes(ARRAY)[:-1], "its header declares 24 bytes of data, the file has only 23"),
        (idx_bytes(ARRAY) + b"\0", "its header declares 24 bytes of data, the file has more"),
        (gzip.compress(idx_bytes(ARRAY) + b"\0"), "its header declares 24 bytes of data, the file has more"),
        (gzip.compress(idx_bytes(ARRAY)[:-1]), "its header declares 24 bytes of data, the file has only 23"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "its header says 4294967295 x 4294967295 x 4294967295"),
        (b"<html>not found</html>", "it begins with 3c68746d"),
    ],
    ids=[
        "empty",
        "header",
        "labels",
        "floats",
        "none",
        "short",
        "long",
        "packed long",
        "packed short",
        "huge",
        "page",
    ],
)
def test_rejects_malformed_file_with_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(BadDataset) as caught:
        read_idx(written(tmp_path, content), 3)
    assert f"images-idx3-ubyte: not a complete idx file ({reason}" in str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
def test_huge_header_size_uses_bounded_memory(tmp_path: Path, packed: bool) -> None:
    content = b"\0\0\x08\x03" + (2**14).to_bytes(4) + (2**8).to_bytes(4) * 2 + b"few"  # 1 GiB
    path = written(tmp_path, gzip.compress(content) if packed else content)
    tracemalloc.start()
    try:
        with pytest.raises(BadDataset, match="has only 3"):
            read_idx(path, 3)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_gzip_bomb_is_read_only_to_header_size(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(idx_bytes(ARRAY) + bytes(2**26)))
    tracemalloc.start()
    try:
        with pytest.raises(BadDataset, match="the file has more"):
            read_idx(path, 3)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_rejects_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=r"gone: not a complete idx file \(No such file or directory\)"):
        read_idx(tmp_path / "gone", 1)
    with pytest.raises(BadDataset, match=r"Is a directory|Permission denied"):
        read_idx(tmp_path, 1)


# MNIST


def by_digit(folder: Path, part: Literal["train", "test"]) -> dict[str, tuple[IdxPhoto, ...]]:
    """Return the images of each digit."""
    digits, photos = mnist_photos(folder, part)
    pairs = list(zip(digits, photos, strict=True))
    return {digit: tuple(photo for each, photo in pairs if each == digit) for digit in sorted(set(digits))}


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_digits_are_identities_with_image_indices(tmp_path: Path, packed: bool) -> None:
    folder = write_mnist(tmp_path / "mnist", {"train": 23, "t10k": 12}, packed=packed)
    train, test = by_digit(folder, "train"), by_digit(folder, "test")
    assert list(train) == list(test) == [f"{digit}" for digit in range(10)]
    assert [photo.index for photo in train["2"]] == [2, 12, 22]
    assert [photo.name for photo in test["1"]] == ["mnist:test/1/00000001", "mnist:test/1/00000011"]


def test_photo_is_image_as_rgb(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist", {"train": 12}, side=28)
    images = np.random.default_rng(12).integers(0, 256, (12, 28, 28), np.uint8)
    for digit, photos in by_digit(folder, "train").items():
        for photo in photos:
            drawn = photo.draw()
            for channel in range(3):
                np.testing.assert_array_equal(drawn.rgb_u8[..., channel], images[photo.index])
            assert (drawn.source, drawn.size_px, drawn.stored_as) == (photo.name, (28, 28), "IDX gray")
            assert photo.name.split("/")[1] == digit


def test_width_and_height_are_not_swapped(tmp_path: Path) -> None:
    file = written(tmp_path, idx_bytes(ARRAY))
    drawn = IdxPhoto(file, "mnist:train/0", 1).draw()
    assert drawn.size_px == drawn.source_size_px == (4, 3)


def test_pickle_excludes_pixels(tmp_path: Path) -> None:
    photos = by_digit(write_mnist(tmp_path / "mnist", {"train": 300}), "train")["7"]
    photos[0].draw()
    sent = pickle.dumps(photos)
    assert pickle.loads(sent) == photos
    assert len(sent) / len(photos) < 100  # 784 pixels each
    assert hash(pickle.loads(sent)) == hash(photos)


def test_file_is_read_again_only_after_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counted(path: Path, dimensions: int) -> np.ndarray:
        read.append(path)
        return read_idx(path, dimensions)

    monkeypatch.setattr(idx, "read_idx", counted)
    file = written(tmp_path, idx_bytes(ARRAY))
    photos = [IdxPhoto(file, "mnist:train/0", index) for index in (0, 1)]
    before = [photo.content_sha256 for photo in photos]
    assert read == [file]
    file.write_bytes(idx_bytes(ARRAY[::-1]))
    os.utime(file, ns=(1, 1))
    assert [photo.content_sha256 for photo in photos] == before[::-1]
    np.testing.assert_array_equal(photos[0].draw().rgb_u8[..., 0], ARRAY[1])
    assert read == [file, file]


def test_content_depends_on_size_and_every_pixel(tmp_path: Path) -> None:
    def content(array: np.ndarray, name: str) -> str:
        return IdxPhoto(written(tmp_path, idx_bytes(array[None]), name), "a", 0).content_sha256

    image = np.arange(12, dtype=np.uint8).reshape(3, 4)
    variants = (image.reshape(4, 3), image ^ (image == 5), image[:, ::-1])
    contents = {content(array, f"{index}") for index, array in enumerate((image, *variants))}
    assert len(contents) == 4
    assert content(image.copy(), "copy") in contents


@pytest.mark.parametrize("how", ["gone", "shorter", "broken"])
def test_changed_file_raises_unreadable_photo(tmp_path: Path, how: str) -> None:
    folder = write_mnist(tmp_path / "mnist", {"train": 23})
    photo = by_digit(folder, "train")["2"][-1]
    if how == "gone":
        photo.file.unlink()
    else:
        photo.file.write_bytes(idx_bytes(np.zeros((3, 28, 28), np.uint8)) if how == "shorter" else b"text")
    for ask in (photo.draw, lambda: photo.content_sha256):
        with pytest.raises(UnreadablePhoto, match=r"^mnist:train/2/00000022: can no longer be read \("):
            ask()


@pytest.mark.parametrize("missing", ["train-images-idx3", "train-labels-idx1"])
def test_rejects_missing_mnist_file_with_download_command(tmp_path: Path, missing: str) -> None:
    folder = write_mnist(tmp_path / "mnist", {"train": 12})
    (folder / f"{missing}-ubyte.gz").unlink()
    with pytest.raises(BadDataset, match=rf"has no {missing}-ubyte\(\.gz\); run familiar download mnist"):
        by_digit(folder, "train")


def test_rejects_labels_that_do_not_match_images(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist", {"train": 12}, packed=False)
    labels = folder / "train-labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(np.zeros(11, np.uint8)))
    with pytest.raises(BadDataset, match="11 labels for 12 images of train-images-idx3-ubyte"):
        by_digit(folder, "train")
    labels.write_bytes(idx_bytes(np.array([0, 9, 10, 3, 200, 0, 0, 0, 0, 0, 0, 0], np.uint8)))
    with pytest.raises(BadDataset, match="label 10 of image 2 is not a digit"):
        by_digit(folder, "train")


@pytest.mark.exhaustive
@pytest.mark.shared_data
def test_mnist_has_published_digit_counts(shared_data: Path) -> None:
    train, test = (by_digit(shared_data / "mnist", part) for part in ("train", "test"))
    # Counts of each digit, as published: http://yann.lecun.com/exdb/mnist/
    assert [len(photos) for photos in train.values()] == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert [len(photos) for photos in test.values()] == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert train["5"][0].index == 0  # the first image is a five
    drawn = train["5"][0].draw().rgb_u8
    assert drawn.shape == (28, 28, 3)
    assert drawn.max() == 255
    assert drawn[:4].max() == 0  # a digit of 20 x 20 px has a margin
