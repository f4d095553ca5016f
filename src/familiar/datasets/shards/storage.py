"""Files on disk or behind a URL that fsspec knows, such as `s3://` or `gs://`."""

from pathlib import Path
from typing import Any

from familiar.core.errors import BadDataset, FamiliarError


def is_url(location: str) -> bool:
    """Whether a location is not on this machine's disks."""
    return "://" in location


def list_files(location: str, suffixes: tuple[str, ...]) -> list[str]:
    """List the files of a folder or a pattern by suffix, sorted; a file itself is listed alone.

    Args:
        location: a path, or a URL, which may contain `*`.
        suffixes: in lower case, each with its dot.

    Raises:
        BadDataset: the storage cannot be reached.
        FamiliarError: fsspec, or what it needs for this kind of URL, is not installed.
    """
    if is_url(location):
        names = _list_url(location)
    elif Path(location).is_dir():
        names = [str(path) for path in Path(location).iterdir() if path.is_file()]
    else:
        pattern = Path(location)
        names = [location] if pattern.is_file() else [str(path) for path in pattern.parent.glob(pattern.name)]
    return sorted(name for name in names if name.lower().endswith(suffixes))


def open_file(location: str) -> Any:
    """Open a file for reading at any position.

    Returns:
        A binary file; those behind a URL are not `typing.IO`.

    Raises:
        OSError: the file is missing or cannot be read.
    """
    if is_url(location):
        files, path = _file_system(location)
        return files.open(path, "rb")
    return Path(location).open("rb")


def read_range(location: str, start: int, size: int) -> bytes:
    """Read some bytes of a file, fewer if it ends before.

    Raises:
        OSError: the file is missing or cannot be read.
    """
    if is_url(location):
        files, path = _file_system(location)
        return files.cat_file(path, start, start + size)
    with Path(location).open("rb") as file:
        file.seek(start)
        return file.read(size)


def size_of(location: str) -> int:
    """Return the size of a file in bytes.

    Raises:
        OSError: the file is missing.
    """
    if is_url(location):
        files, path = _file_system(location)
        return int(files.size(path))
    return Path(location).stat().st_size


def _list_url(location: str) -> list[str]:
    files, path = _file_system(location)
    try:
        if "*" in path:
            names = files.glob(path)
        elif files.isdir(path):
            names = files.ls(path, detail=False)
        else:
            names = [path] if files.exists(path) else []
    except Exception as error:  # each kind of storage has errors of its own
        raise BadDataset(f"{location}: cannot be listed ({error})") from error
    return [files.unstrip_protocol(name) for name in names]


def _file_system(location: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise FamiliarError(f"{location}: this needs fsspec: pip install 'familiar-faces[data]'") from error
    try:
        return fsspec.core.url_to_fs(location)
    except (ImportError, ValueError) as error:  # s3fs is missing; no such kind of URL
        raise FamiliarError(f"{location}: {error}") from error
