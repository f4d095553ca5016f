"""Make a damaged gallery usable again: accept what another program has written, or keep what can be read."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from familiar.core.errors import BadGallery, CannotWrite
from familiar.gallery.store import recovery
from familiar.gallery.store.connection import DATABASE, translate_errors
from familiar.gallery.store.drafts import draft_folder
from familiar.gallery.store.index_lock import index_lock
from familiar.gallery.store.space import Space
from familiar.neighbors.hnsw import erase as erase_index


@dataclass(frozen=True)
class RepairResult:
    """The outcome of a repair.

    Attributes:
        accepted: rows on pages that another program has written, or that are damaged where no rule is broken: look at
            them. They were kept as they are.
        saved: the number of rows recovered from each table that had any; empty if the file was accepted as it is.
        lost: rows that could not be read, by table and number, and rows that referred to them.
        kept_in: the folder to which the damaged file was moved; None if the file was accepted as it is.
        backup: the newest automatic copy that is intact, if it has more photos, faces or names than the gallery now.
    """

    accepted: tuple[str, ...] = ()
    saved: dict[str, int] = field(default_factory=dict[str, int])
    lost: tuple[str, ...] = ()
    kept_in: Path | None = None
    backup: Path | None = None


def repair(folder: Path, space: Space | None = None) -> RepairResult:
    """Accept what another program has written to a gallery; or write all rows that can be read into a new database.

    Args:
        folder: the gallery's folder.
        space: of the gallery's model, for when the row that says so is lost.

    Raises:
        BadGallery: there is no gallery, or nothing can be recovered.
        CannotWrite: the folder cannot be written to; the gallery is as it was.
        GalleryBusy: another program has the gallery open, and the file has to be replaced.
    """
    path = folder / DATABASE
    if not path.is_file():
        raise BadGallery(f"{folder}: there is no gallery to repair")
    with translate_errors(folder):
        accepted = recovery.accept(path)
        result = RepairResult(accepted) if accepted is not None else _recover(folder, space)
    return replace(result, backup=recovery.better_copy(folder))


def _recover(folder: Path, space: Space | None) -> RepairResult:
    """Put a new database in place, with all rows that can be read."""
    try:
        with draft_folder(folder) as draft:
            recovered = recovery.recover(folder / DATABASE, draft / DATABASE, space)
            with index_lock(folder):
                erase_index(folder)  # which is of the damaged gallery
            kept_in = recovery.replace(folder, draft / DATABASE)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be repaired there ({error.strerror or error})") from error
    return RepairResult(saved=recovered.saved, lost=tuple(recovered.lost), kept_in=kept_in)
