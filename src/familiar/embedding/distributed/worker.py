"""What a worker does: embed the photos of a part and write its Parquet file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from familiar.core.errors import FamiliarError, UnreadablePhoto
from familiar.core.types import Face, Photo
from familiar.datasets.folders import open_photo
from familiar.detection.detector import Detector, looked_for
from familiar.detection.faces import MIN_SCORE, DetectedFaces
from familiar.embedding.distributed.parts import EmbeddedWith, PhotoFile, count_rows, part_path, write_part
from familiar.embedding.embedder import Embedder
from familiar.embedding.species import absolute_model

MAX_DEATHS = 3  # of workers while they decode the same photo
MAX_ATTEMPTS = 20  # to embed a part; machines that are taken away for others end some
_SEARCHED = "searched"  # in the journal: the photo before is decoded, and its faces are found


@dataclass(frozen=True)
class EmbeddingSettings:
    """How photos are embedded.

    Attributes:
        models: as for `Embedder`; the same on all machines.
        detector: its name, as for `build_detector`; None: the model's.
        detector_model: path of the detector's network.
        flip: as in `Embedder.embed`.
        species: of all faces; None: what the detector says.
        min_score: detections below it are ignored, in [0, 1].
        providers: execution providers of ONNX Runtime; None: the CPU.
    """

    models: tuple[str, ...]
    detector: str | None = None
    detector_model: str | None = None
    flip: bool = False
    species: str | None = None
    min_score: float = MIN_SCORE
    providers: tuple[str, ...] | None = None

    def with_absolute_paths(self) -> "EmbeddingSettings":
        """Return them for processes whose current folder may be another."""

        def absolute(name: str | None) -> Any:
            return str(Path(name).absolute()) if name is not None and Path(name).exists() else name

        return replace(
            self, models=tuple(map(absolute_model, self.models)), detector_model=absolute(self.detector_model)
        )

    def open(self) -> tuple[Embedder, Detector]:
        """Open the model and its detector, for one thread."""
        model = Embedder(self.models, threads=1, providers=self.providers)
        return model, model.detector(self.detector, Path(self.detector_model) if self.detector_model else None)

    def describe(self, model: Embedder, detector: Detector) -> EmbeddedWith:
        """Return what is stored with the embeddings."""
        space_id, dim, _ = model.space
        file_ids = tuple(sorted(bundle.file_id for bundle in model.bundles.values()))
        return EmbeddedWith(space_id, dim, file_ids, self.detector or type(detector).__name__, self.flip)


class PartEmbedder:
    """Embeds parts, one after the other.

    Args:
        settings: how.
        folder: of the Parquet files; all workers reach it at this path.
    """

    def __init__(self, settings: EmbeddingSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.model, self.detector = settings.open()
        self.embedded_with = settings.describe(self.model, self.detector)

    def embed_part(self, photos: Sequence[PhotoFile]) -> tuple[int, int, int]:
        """Write the Parquet file of a part, unless an earlier attempt has written it.

        A photo that ended the process several times, as a forged file can, gets a row with that reason.

        Args:
            photos: of the part.

        Returns:
            Numbers of photos, of faces, and of rows without an embedding.

        Raises:
            CannotWrite: the system refuses.
            FamiliarError: many attempts ended with the death of their process.
        """
        path = part_path(self.folder, photos)
        attempts = path.with_suffix(".attempts")
        if not path.exists():
            journal = Journal(attempts)
            if journal.attempts > MAX_ATTEMPTS:
                attempts.unlink()
                raise FamiliarError(
                    f"{path}: the workers that tried to embed {photos[0].name} to {photos[-1].name} were killed "
                    f"{MAX_ATTEMPTS} times, possibly for lack of memory; repeat the command to try again"
                )
            results = zip(photos, self._embed(photos, journal), strict=True)
            rows = [row for file, result in results for row in self._rows(file, result)]
            write_part(path, rows, self.embedded_with)
        attempts.unlink(missing_ok=True)
        return count_rows(path)

    def _embed(self, photos: Sequence[PhotoFile], journal: "Journal") -> Iterator[DetectedFaces | FamiliarError]:
        def open_noted(number: int, *, min_side_px: int | None = None) -> Photo:
            if journal.deaths_at(number) >= MAX_DEATHS:
                raise UnreadablePhoto(f"{photos[number].name}: ended the process that read it {MAX_DEATHS} times")
            journal.note(str(number))
            return open_photo(photos[number].photo, min_side_px=min_side_px)

        detector = _NotingDetector(self.detector, journal)
        settings, numbers = self.settings, range(len(photos))
        return self.model.faces(
            numbers,
            detector,
            open_photo=open_noted,
            species=settings.species,
            flip=settings.flip,
            min_score=settings.min_score,
        )

    def _rows(self, file: PhotoFile, result: DetectedFaces | FamiliarError) -> Iterator[dict[str, Any]]:
        common = {"photo": file.name, "size_bytes": file.size_bytes, "modified_ns": file.modified_ns}
        if isinstance(result, FamiliarError):
            yield common | {"error": str(result)}
            return
        for number, face in enumerate(result.faces, start=1):
            yield common | self._columns(face) | {"face": number}
        if result.skipped or not result.faces:
            reason = str(result.skipped[0]) if result.skipped else f"{file.name}: no {looked_for(self.detector)} found"
            yield common | {"error": reason}

    def _columns(self, face: Face) -> dict[str, Any]:
        embedder, _ = self.model.only(face.species)
        return {
            "box_xyxy_px": list(face.box_xyxy_px),
            "score": face.score,
            "quality": face.quality,
            "species": face.species,
            "embedding": face.embedding,
            "file_id": embedder.bundle.file_id,
        }


class _NotingDetector:
    """A detector that notes when it is done with a photo."""

    def __init__(self, detector: Detector, journal: "Journal") -> None:
        self._detector, self._journal = detector, journal

    def detect(self, photo: Photo) -> list[Face]:
        """Find the faces of a photo."""
        faces = self._detector.detect(photo)
        self._journal.note(_SEARCHED)
        return faces


class Journal:
    """What each attempt to embed a part was doing last: a file next to the part's.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        attempts = path.read_text().split("start\n")[1:] if path.exists() else []
        self.attempts = len(attempts) + 1
        last_lines = [attempt.split()[-1] for attempt in attempts if attempt.split()]
        self._deaths = {line: last_lines.count(line) for line in last_lines}
        self.note("start")

    def note(self, line: str) -> None:
        """Write what begins now; the system has it even if the process is killed."""
        with self.path.open("a") as file:
            file.write(f"{line}\n")

    def deaths_at(self, photo: int) -> int:
        """Return how many attempts ended while they decoded a photo."""
        return self._deaths.get(str(photo), 0)
