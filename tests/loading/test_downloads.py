"""Downloads through torchvision's and scikit-learn's own code, from small files served on this machine."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadDataset, CannotWrite
from familiar.datasets.folders import DataSpec, open_photo, scan_folders
from familiar.datasets.pairs import read_lfw_pairs
from familiar.loading import downloads
from familiar.loading.downloads import DOWNLOADS, download_lfw, download_mnist
from support.dataset_mirror import PEOPLE, Mirror, redirect_lfw, serve_folder, serve_lfw, serve_mnist
from support.idx_files import write_mnist

# Of an answer that is an error, the libraries leave the socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(downloads, "RETRY_AFTER_S", 1e-3)
    (tmp_path / "served").mkdir()
    with serve_folder(tmp_path / "served") as mirror:
        yield mirror


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"served"}


def refusal(download: Callable[[Path], bool], folder: Path) -> str:
    """Return the message of a failed download, and check that it left nothing behind."""
    with pytest.raises(BadDataset) as caught:
        download(folder)
    message = str(caught.value)
    assert message.endswith("); try again with a network connection")
    assert "\n" not in message
    assert files_in(folder.parent) == set()
    del caught
    gc.collect()  # so that sockets left open are reported in this test
    return message


# MNIST


def test_downloaded_mnist_is_readable(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_mnist(mirror, monkeypatch)
    folder = tmp_path / "mnist"
    assert download_mnist(folder)
    for part, photos in (("", 40), (":test", 20)):
        table = DataSpec((f"mnist:{folder}{part}",)).read()
        assert (len(table), len(table.names)) == (photos, 10)
    images = np.random.default_rng(20).integers(0, 256, (20, 28, 28), np.uint8)
    np.testing.assert_array_equal(open_photo(table.photos[0]).rgb_u8[..., 0], images[0])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in mirror.folder.iterdir()
    }
    assert files_in(tmp_path) == {"mnist"}


def test_existing_dataset_is_not_downloaded_again(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_mnist(mirror, monkeypatch)
    serve_lfw(mirror, monkeypatch)
    for name, download in DOWNLOADS.items():
        assert download(tmp_path / name)
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / name).rglob("*")}
        mirror.requested_paths.clear()
        assert not download(tmp_path / name)
        assert not mirror.requested_paths
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / name).rglob("*")} == before


def test_downloads_into_empty_or_new_folder(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_mnist(mirror, monkeypatch)
    (tmp_path / "empty").mkdir()
    assert download_mnist(tmp_path / "empty")
    assert download_mnist(tmp_path / "to" / "be" / "made")
    monkeypatch.chdir(tmp_path)
    assert download_mnist(Path("here"))
    assert files_in(tmp_path) == {"empty", "to", "here"}
    assert not any(path.name.startswith(".") for path in tmp_path.rglob("*"))


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["missing", "changed", "cut", "unreachable"])
def test_failed_mnist_download_leaves_no_files(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    serve_mnist(mirror, monkeypatch)
    file = mirror.folder / "t10k-labels-idx1-ubyte.gz"  # the last to be fetched
    if fault == "missing":
        file.unlink()
    elif fault == "unreachable":
        monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", ["http://127.0.0.1:9/"])
    else:
        file.write_bytes(file.read_bytes()[:-5] + (b"other" if fault == "changed" else b""))
    assert refusal(download_mnist, tmp_path / "mnist").startswith("MNIST cannot be downloaded (Error downloading ")


def test_interrupted_download_leaves_no_files(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_mnist(mirror, monkeypatch)

    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DataSpec, "read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        download_mnist(tmp_path / "mnist")
    assert files_in(tmp_path) == set()


def test_rejects_folder_with_other_files(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_mnist(mirror, monkeypatch)
    serve_lfw(mirror, monkeypatch)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for name in ("mine", "file"):
        for download in DOWNLOADS.values():
            with pytest.raises(
                CannotWrite, match=rf"{name}: contains something else than (MNIST|LFW) .*name a new folder"
            ):
                download(tmp_path / name)
    assert not mirror.requested_paths
    assert files_in(tmp_path) == {"mine", "file"}
    assert files_in(tmp_path / "mine") == {"letter.txt"}


def test_rejects_incomplete_mnist_folder(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", {"train": 10})
    with pytest.raises(CannotWrite, match=r"contains something else than MNIST \(.*has no t10k-images-idx3-ubyte"):
        download_mnist(tmp_path / "mnist")


def test_missing_library_raises_module_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision.datasets", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    for download in DOWNLOADS.values():
        with pytest.raises(ModuleNotFoundError):  # of which the command line makes: pip install ...
            download(tmp_path / "new")
    assert files_in(tmp_path) == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_rejects_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(CannotWrite, match=r"closed/mnist: cannot be written \(Permission denied\)"):
        download_mnist(tmp_path / "closed" / "mnist")


def test_rejects_file_as_parent_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("dear")
    with pytest.raises(CannotWrite, match=r"file: cannot be created \(File exists\)"):
        download_mnist(tmp_path / "file" / "mnist")


# LFW


def test_downloaded_lfw_is_readable(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_lfw(mirror, monkeypatch)
    folder = tmp_path / "lfw"
    assert download_lfw(folder)
    table = scan_folders(folder)
    assert table.names == tuple(f"lfw/{name}" for name in PEOPLE)
    assert table.photos_per_identity.tolist() == list(PEOPLE.values())
    assert open_photo(table.photos[0]).size_px == (250, 250)
    for name in downloads.LFW_PAIRS:
        assert read_lfw_pairs(folder / name, table).same.tolist() == [True, False]
    assert files_in(folder) == {*PEOPLE, *downloads.LFW_PAIRS}
    assert files_in(tmp_path) == {"lfw"}


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["missing", "changed", "no archive", "unreachable"])
def test_failed_lfw_download_leaves_no_files(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    archive = mirror.folder / "lfw-funneled.tgz"
    serve_lfw(mirror, monkeypatch)
    if fault == "missing":
        archive.unlink()
    elif fault == "changed":
        archive.write_bytes(archive.read_bytes() + b"more")
    elif fault == "no archive":  # though its sum is the published one
        archive.write_bytes(b"text")
        redirect_lfw(mirror, monkeypatch)
    else:
        redirect_lfw(mirror, monkeypatch, "http://127.0.0.1:9/")
    assert refusal(download_lfw, tmp_path / "lfw").startswith("LFW cannot be downloaded (")


@pytest.mark.slow
def test_rejects_archive_with_missing_photos(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_lfw(mirror, monkeypatch, without="Ann_Lee_0003.jpg")
    assert "LFW cannot be downloaded" in refusal(download_lfw, tmp_path / "lfw")
