"""Downloads of public data sets, MNIST and LFW, into the layout that `datasets` reads.

torchvision and scikit-learn fetch and verify the files. They are imported only when needed.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

from familiar.core.errors import BadDataset, CannotWrite
from familiar.core.files import draft_folder, publish_folder
from familiar.core.terminal_text import one_line
from familiar.datasets.folders import DataSpec, scan_folders
from familiar.datasets.pairs import read_lfw_pairs

LFW_PAIRS = ("pairsDevTrain.txt", "pairsDevTest.txt", "pairs.txt")
RETRY_AFTER_S = 1.0


def download_mnist(folder: Path) -> bool:
    """Download the four idx files of MNIST, gzipped, with torchvision (11 MB), for `mnist:FOLDER`.

    Args:
        folder: created with its parents; it may exist if it is empty or contains MNIST already.

    Returns:
        Whether the files were downloaded: False if they were there already.

    Raises:
        BadDataset: they cannot be downloaded; nothing is left behind.
        CannotWrite: the folder has other contents or cannot be written.
    """
    return _download("MNIST", folder, _fetch_mnist, _check_mnist)


def download_lfw(folder: Path) -> bool:
    """Download LFW, funneled, 250 x 250 px, as `NAME/NAME_0001.jpg`, with its pairs files, with scikit-learn (240 MB).

    scikit-learn does not provide the people files.

    Args:
        folder: created with its parents; it may exist if it is empty or contains LFW already.

    Returns:
        Whether the photos were downloaded: False if they were there already.

    Raises:
        BadDataset: they cannot be downloaded; nothing is left behind.
        CannotWrite: the folder has other contents or cannot be written.
    """
    return _download("LFW", folder, _fetch_lfw, _check_lfw)


DOWNLOADS: dict[str, Callable[[Path], bool]] = {"mnist": download_mnist, "lfw": download_lfw}


def _download(name: str, folder: Path, fetch: Callable[[Path], Path], check: Callable[[Path], None]) -> bool:
    """Fetch into a temporary folder, check by reading, and rename, so that `folder` is complete or absent."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        try:
            check(folder)
        except BadDataset as error:
            raise CannotWrite(f"{folder}: contains something else than {name} ({error}); name a new folder") from error
        return False
    with draft_folder(folder) as draft:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about each retry; the last failure is reported below
                fetched = fetch(draft)
            check(fetched)
        except ImportError:  # the library itself is missing
            raise
        except Exception as error:  # networks fail in many ways, and so does reading a damaged download
            raise BadDataset(
                f"{name} cannot be downloaded ({one_line(str(error))}); try again with a network connection"
            ) from error
        publish_folder(fetched, folder)
    return True


def _fetch_mnist(draft: Path) -> Path:
    from torchvision.datasets import MNIST

    unpacked = Path(MNIST(draft, download=True).raw_folder)
    for file in unpacked.glob("*-ubyte"):
        file.unlink()  # the gzipped files stay: a fifth of the size, and read as fast
    return unpacked


def _check_mnist(folder: Path) -> None:
    for part in ("", ":test"):
        DataSpec((f"mnist:{folder}{part}",)).read()


def _fetch_lfw(draft: Path) -> Path:
    from sklearn.datasets import fetch_lfw_pairs

    fetch_lfw_pairs(subset="test", data_home=draft, delay=RETRY_AFTER_S)  # fetches all of LFW, opens a part of it
    photos = draft / "lfw_home" / "lfw_funneled"
    for name in LFW_PAIRS:
        (draft / "lfw_home" / name).replace(photos / name)
    return photos


def _check_lfw(folder: Path) -> None:
    """Raise BadDataset if a photo of a pairs file is missing."""
    table = scan_folders(folder)
    for name in LFW_PAIRS:
        read_lfw_pairs(folder / name, table)
