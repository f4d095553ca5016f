"""Tar files as WebDataset writes them: the files of a sample share a name up to its first dot.

The photo is the file with a photo's suffix. Its identity is the field `identity` or `label` of the sample's `.json`, or
the text of its `.cls` or `.txt`, or else the folder of its name in the tar file.
"""

import hashlib
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath
from typing import IO, Any

from familiar.core.errors import BadDataset, UnreadablePhoto
from familiar.core.json_text import parse_json
from familiar.datasets.shards.storage import open_file, read_range, size_of
from familiar.datasets.stored_photo import StoredPhoto
from familiar.photos.listing import PHOTO_SUFFIXES

INDEX_SUFFIX = ".index.json"  # beside a shard: what is where in it, so that it need not be read to be listed
MAX_LABEL_BYTES = 2**20
LABEL_FIELDS = ("identity", "label")
LABEL_SUFFIXES = (".cls", ".txt")
_IndexEntry = tuple[str, str, int, int, str]  # identity, name, position, bytes, SHA-256 in hexadecimal or ""


@dataclass(frozen=True, slots=True)
class TarPhoto(StoredPhoto):
    """A photo in a tar file, which is not compressed.

    Attributes:
        shard: path or URL of the tar file.
        name: of the photo's own file, without a folder.
        start: position of its first byte in the tar file.
        size_bytes: of its file.
        sha256: of its bytes, hexadecimal, if the shard has an index; else empty.
    """

    shard: str
    name: str
    start: int
    size_bytes: int
    sha256: str = ""

    def read_bytes(self) -> bytes:
        """Read the photo's file.

        Raises:
            UnreadablePhoto: the shard is missing, cannot be reached, or has become shorter.
        """
        try:
            data = read_range(self.shard, self.start, self.size_bytes)
        except OSError as error:
            raise UnreadablePhoto(f"{self}: cannot be read ({error.strerror or error})") from error
        if len(data) < self.size_bytes:
            raise UnreadablePhoto(f"{self}: the shard has become shorter since it was listed; copy it again")
        return data

    @property
    def content_sha256(self) -> str:
        """SHA-256 of its bytes, hexadecimal."""
        return self.sha256 or hashlib.sha256(self.read_bytes()).hexdigest()

    @property
    def position(self) -> int:
        """A number that grows in the order in which the shard is read."""
        return self.start

    def __str__(self) -> str:
        return f"{self.shard}:{self.name}"


def scan_tar(shard: str, ignored: Counter[str]) -> Iterator[tuple[str, TarPhoto]]:
    """Yield the identity and the photo of each sample of a tar file, from its index if it has one that fits.

    Args:
        shard: path or URL.
        ignored: counts what is skipped, by reason.

    Raises:
        BadDataset: the file cannot be read, is no tar file, or is cut short.
    """
    try:
        size = size_of(shard)
        index = _read_index(shard, size)
        if index is not None:
            for identity, name, start, photo_bytes, sha256 in index:
                yield identity, TarPhoto(shard, name, start, photo_bytes, sha256)
            return
        with open_file(shard) as file, tarfile.open(fileobj=file, mode="r:", tarinfo=_Member) as tar:
            members = (member for member in _members(tar) if member.isfile())
            for _, sample in groupby(members, lambda member: _key(member.name)):
                yield from _read_sample(shard, list(sample), file, size, ignored)
    except tarfile.TarError as error:
        raise BadDataset(
            f"{shard}: is not a tar file, or a damaged or compressed one ({error}); copy it again"
        ) from error
    except OSError as error:
        raise BadDataset(f"{shard}: cannot be read ({error.strerror or error})") from error


class _Member(tarfile.TarInfo):
    """A member whose header does not lead backwards, which Python before 3.11.14 follows forever (CVE-2025-8194)."""

    def _block(self, count: int) -> int:
        if count < 0:
            raise tarfile.ReadError("a negative size")
        return super()._block(count)  # pyright: ignore[reportAttributeAccessIssue]


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Iterate over a tar file; whatever is wrong with it is a TarError."""
    try:
        yield from tar
    except (ValueError, OverflowError) as error:  # a size beyond what files can have
        raise tarfile.ReadError(str(error)) from error


def _read_sample(
    shard: str, members: list[tarfile.TarInfo], file: IO[bytes], size: int, ignored: Counter[str]
) -> Iterator[tuple[str, TarPhoto]]:
    last = members[-1]
    if last.offset_data + last.size > size:
        raise BadDataset(
            f"{shard}: is cut short: {last.name} ends at byte {last.offset_data + last.size:,}, the file at {size:,}; "
            "copy it again"
        )
    by_suffix = {_suffix(member.name): member for member in members}
    photos = [member for suffix, member in by_suffix.items() if suffix in PHOTO_SUFFIXES]
    if not photos:
        ignored["samples without a photo"] += 1
        return
    member = photos[0]
    identity, name = _label(by_suffix, file, shard)
    if not identity:
        identity = str(PurePosixPath(member.name).parent)
    if identity in ("", "."):
        ignored["photos without an identity"] += 1
        return
    yield identity, TarPhoto(shard, name or PurePosixPath(member.name).name, member.offset_data, member.size)


def _label(by_suffix: dict[str, tarfile.TarInfo], file: IO[bytes], shard: str) -> tuple[str, str]:
    """Return the identity and the photo's name as a sample's other files say them; "" where they do not."""
    if (member := by_suffix.get(".json")) is not None:
        try:
            fields: Any = parse_json(_read_member(member, file))
        except ValueError as error:
            raise BadDataset(f"{shard}: {member.name} is not JSON ({error})") from error
        if isinstance(fields, dict):
            identity = next((str(fields[field]) for field in LABEL_FIELDS if field in fields), "")
            return identity, PurePosixPath(str(fields.get("name", ""))).name
    for suffix in LABEL_SUFFIXES:
        if (member := by_suffix.get(suffix)) is not None:
            return _read_member(member, file).decode("utf-8", "replace").strip(), ""
    return "", ""


def _read_member(member: tarfile.TarInfo, file: IO[bytes]) -> bytes:
    position = file.tell()
    file.seek(member.offset_data)
    data = file.read(min(member.size, MAX_LABEL_BYTES))
    file.seek(position)
    return data


def _read_index(shard: str, size: int) -> list[_IndexEntry] | None:
    """Read the index beside a shard; None if there is none.

    Raises:
        BadDataset: it is damaged, or belongs to a file of another size.
    """
    try:
        with open_file(shard + INDEX_SUFFIX) as file:
            index = parse_json(file.read())
        stored_size, photos = int(index["bytes"]), _parse_entries(index["photos"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadDataset(f"{shard}{INDEX_SUFFIX}: is damaged; copy it again, or delete it ({error})") from error
    if stored_size != size:
        raise BadDataset(
            f"{shard}: has {size:,} bytes, but its index says {stored_size:,}, so it is cut short or another one; copy "
            f"both again, or delete {INDEX_SUFFIX[1:]} if the shard is right"
        )
    beyond = next((name for _, name, start, photo_bytes, _ in photos if start + photo_bytes > size), None)
    if beyond is not None:
        raise BadDataset(f"{shard}{INDEX_SUFFIX}: is damaged: {beyond} ends behind the end of the shard; copy it again")
    return photos


def _parse_entries(stored: Any) -> list[_IndexEntry]:
    """Check the entries of an index. ValueError or TypeError if they are none."""
    entries: list[_IndexEntry] = []
    for identity, name, start, photo_bytes, sha256 in stored:
        if not (isinstance(identity, str) and isinstance(name, str) and isinstance(sha256, str)):
            raise TypeError("an identity, a name or a checksum is not a text")
        if not (type(start) is type(photo_bytes) is int and start >= 0 and photo_bytes >= 0):
            raise TypeError("a position or a size is not a number of bytes")
        entries.append((identity, name, start, photo_bytes, sha256))
    return entries


def _key(name: str) -> str:
    """Return what the names of a sample's files have in common."""
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.partition(".")[0]


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()
