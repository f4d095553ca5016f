"""Public sets fetched into the layout that our readers take, by whoever has a network: MNIST and LFW.

torchvision and scikit-learn know where the sets are and check what arrives. Nothing is imported before it is needed.
"""

import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from familiar.core.errors import BadDataset, CannotWrite
from familiar.core.terminal_text import one_line
from familiar.datasets.folders import DataSpec, scan_folders
from familiar.datasets.pairs import read_lfw_pairs

LFW_PAIRS = ("pairsDevTrain.txt", "pairsDevTest.txt", "pairs.txt")
RETRY_AFTER_S = 1.0


def download_mnist(folder: Path) -> bool:
    """The four idx files, gzipped, in `folder`, by torchvision (11 MB); for `mnist:FOLDER`.

    False where they are there already. BadDataset where they cannot be fetched; then nothing is left behind.
    CannotWrite where the folder holds something else.
    """
    return _download("MNIST", folder, _fetch_mnist, _check_mnist)


def download_lfw(folder: Path) -> bool:
    """LFW, funneled, 250 x 250 px, as `NAME/NAME_0001.jpg`, with its pairs files, by scikit-learn (240 MB).

    The people files are not among what scikit-learn publishes. As for `download_mnist` otherwise.
    """
    return _download("LFW", folder, _fetch_lfw, _check_lfw)


DOWNLOADS: dict[str, Callable[[Path], bool]] = {"mnist": download_mnist, "lfw": download_lfw}


def _download(name: str, folder: Path, fetch: Callable[[Path], Path], check: Callable[[Path], None]) -> bool:
    """Fetched beside its place, checked by reading it, and renamed: whole or absent."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        try:
            check(folder)
        except BadDataset as error:
            raise CannotWrite(f"{folder}: holds something else than {name} ({error}); name a new folder") from error
        return False
    with _draft_folder(folder) as draft:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of each new attempt; the last one's failure is told
                fetched = fetch(draft)
            check(fetched)
        except ImportError:  # the library itself is missing
            raise
        except Exception as error:  # a network may fail in any way, and so may code that reads what arrived
            raise BadDataset(
                f"{name} cannot be downloaded ({one_line(str(error))}); try again where there is a network"
            ) from error
        if folder.exists():
            folder.rmdir()  # empty, as was seen above; not everywhere would a rename put it aside
        fetched.rename(folder)
    return True


@contextmanager
def _draft_folder(folder: Path) -> Iterator[Path]:
    draft = folder.absolute().with_name(f".{folder.absolute().name}.{secrets.token_hex(4)}")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be written ({error.strerror})") from error
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fetch_mnist(draft: Path) -> Path:
    from torchvision.datasets import MNIST

    unpacked = Path(MNIST(draft, download=True).raw_folder)
    for file in unpacked.glob("*-ubyte"):
        file.unlink()  # the gzipped ones stay: a fifth as large, and read as fast
    return unpacked


def _check_mnist(folder: Path) -> None:
    for part in ("", ":test"):
        DataSpec((f"mnist:{folder}{part}",)).read()


def _fetch_lfw(draft: Path) -> Path:
    from sklearn.datasets import fetch_lfw_pairs

    fetch_lfw_pairs(subset="test", data_home=draft, delay=RETRY_AFTER_S)  # fetches all of LFW, opens some of it
    photos = draft / "lfw_home" / "lfw_funneled"
    for name in LFW_PAIRS:
        (draft / "lfw_home" / name).replace(photos / name)
    return photos


def _check_lfw(folder: Path) -> None:
    """Whether every photo that a pairs file names is there."""
    table = scan_folders(folder)
    for name in LFW_PAIRS:
        read_lfw_pairs(folder / name, table)
