"""Download of one file whose content is known: resumed where it broke off, and verified before it is used."""

import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import CannotDownload, CannotWrite
from familiar.core.files import content_sha256, fsync_directory, make_folder, writing

BLOCK_BYTES = 1 << 20
TIMEOUT_S = 60


@dataclass(frozen=True)
class PublishedFile:
    """A file of a publisher.

    Attributes:
        url: where it is.
        sha256: of its content, as hexadecimal digits.
        size_bytes: its length.
        license: its terms of use.
    """

    url: str
    sha256: str
    size_bytes: int
    license: str

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]


def download(
    file: PublishedFile,
    target: Path,
    *,
    url: str | None = None,
    on_bytes: Callable[[int, int], None] = lambda _done, _total: None,
) -> bool:
    """Download a file, unless it is there already.

    Args:
        file: what to download.
        target: the file to write; its folder is created. What arrived of an incomplete download stays in a file beside
            it, where the next call goes on.
        url: where to get it instead of from its publisher.
        on_bytes: called with the number of bytes so far and of all bytes.

    Returns:
        Whether it was downloaded: False if it was there.

    Raises:
        CannotDownload: the connection fails or breaks off, or the content is another one.
        CannotWrite: the target is another file, or cannot be written.
    """
    if target.exists():
        if not target.is_file() or content_sha256(target).hex() != file.sha256:
            raise CannotWrite(f"{target}: exists, but is not {file.name}; remove it, or name another file")
        return False
    part = target.with_name(f".{target.name}.part")
    make_folder(target.parent)
    with writing(target):
        resumed = part.exists()
        _fetch(file, part, url or file.url, on_bytes)
        # A power cut can leave a part of the right length without its data.
        if resumed and content_sha256(part).hex() != file.sha256:
            part.unlink()
            _fetch(file, part, url or file.url, on_bytes)
        if content_sha256(part).hex() != file.sha256:
            part.unlink()
            raise CannotDownload(
                f"{url or file.url}: has another content than {file.name} as published (SHA-256); nothing was kept"
            )
        part.replace(target)
        fsync_directory(target.parent)
    return True


def _fetch(file: PublishedFile, part: Path, url: str, on_bytes: Callable[[int, int], None]) -> None:
    done = part.stat().st_size if part.exists() else 0
    if done > file.size_bytes:
        part.unlink()
        done = 0
    if done == file.size_bytes:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            if done and answer.status != 206:  # the server does not resume
                done = 0
            with part.open("ab" if done else "wb") as output:
                while block := answer.read(BLOCK_BYTES):
                    output.write(block)
                    done += len(block)
                    on_bytes(done, file.size_bytes)
                    if done > file.size_bytes:
                        break  # another file; its checksum tells
                output.flush()
                os.fsync(output.fileno())
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise CannotDownload(
            f"{url}: cannot be downloaded ({reason}); try again, it goes on where it stopped"
        ) from error
    if done < file.size_bytes:
        raise CannotDownload(
            f"{url}: broke off after {done:,} of {file.size_bytes:,} bytes; try again, it goes on where it stopped"
        )
