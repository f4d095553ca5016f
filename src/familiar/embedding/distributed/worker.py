"""What a worker does: embed the photos of a part and write its Parquet file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from familiar.core.errors import FamiliarError
from familiar.core.types import Face
from familiar.datasets.folders import open_photo
from familiar.detection.detector import Detector, looked_for
from familiar.embedding.all_faces import MIN_SCORE, PhotoBatch
from familiar.embedding.distributed.parts import EmbeddedWith, PhotoFile, count_rows, part_path, write_part
from familiar.embedding.model import Model
from familiar.embedding.species.router_file import open_model

MAX_DEATHS = 3  # of workers while they decode the same photo
MAX_ATTEMPTS = 20  # to embed a part; machines that are taken away for others end some
_EMBEDDING = "embedding"  # in the journal: all photos of a batch are decoded


@dataclass(frozen=True)
class EmbeddingSettings:
    """How photos are embedded.

    Attributes:
        model: path or name of a bundle, or path of a router; the same on all machines.
        detector: its name, as for `build_detector`; None: the model's.
        detector_model: path of the detector's network.
        flip: as in `Embedder.embed`.
        min_score: detections below it are ignored, in [0, 1].
        providers: execution providers of ONNX Runtime; None: the CPU.
    """

    model: str
    detector: str | None = None
    detector_model: str | None = None
    flip: bool = False
    min_score: float = MIN_SCORE
    providers: tuple[str, ...] | None = None

    def with_absolute_paths(self) -> "EmbeddingSettings":
        """Return them for processes whose current folder may be another."""

        def absolute(name: str | None) -> Any:
            return str(Path(name).absolute()) if name is not None and Path(name).exists() else name

        return replace(self, model=absolute(self.model), detector_model=absolute(self.detector_model))

    def open(self) -> tuple[Model, Detector]:
        """Open the model and its detector, for one thread."""
        model = open_model(self.model, threads=1, providers=self.providers)
        return model, model.detector(self.detector, Path(self.detector_model) if self.detector_model else None)

    def describe(self, model: Model, detector: Detector) -> EmbeddedWith:
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
            rows: list[dict[str, Any]] = []
            size = self.model.batch_size
            for start in range(0, len(photos), size):
                rows += self._embed_batch(photos[start : start + size], start, journal)
            write_part(path, rows, self.embedded_with)
        attempts.unlink(missing_ok=True)
        return count_rows(path)

    def _embed_batch(self, photos: Sequence[PhotoFile], start: int, journal: "Journal") -> list[dict[str, Any]]:
        batch = PhotoBatch(self.model, self.detector, self.settings.min_score)
        reasons: dict[int, str] = {}
        decoded: list[int] = []
        min_side_px = self.model.min_decoded_side_px(self.detector)
        for index, file in enumerate(photos):
            if journal.deaths_at(start + index) >= MAX_DEATHS:
                reasons[index] = f"{file.name}: ended the process that read it {MAX_DEATHS} times"
                continue
            journal.note(str(start + index))
            try:
                batch.add(open_photo(file.photo, min_side_px=min_side_px))
                decoded.append(index)
            except FamiliarError as error:
                reasons[index] = str(error)
        journal.note(_EMBEDDING)
        faces, without_bundle = batch.embed(flip=self.settings.flip)
        faces_by_index = dict(zip(decoded, faces, strict=True))
        for index, error in without_bundle:
            reasons.setdefault(decoded[index], str(error))
        rows: list[dict[str, Any]] = []
        for index, file in enumerate(photos):
            common = {"photo": file.name, "size_bytes": file.size_bytes, "modified_ns": file.modified_ns}
            numbered_faces = enumerate(faces_by_index.get(index, ()), start=1)
            rows += [common | self._columns(face) | {"face": number} for number, face in numbered_faces]
            if index in reasons or not faces_by_index[index]:
                rows.append(
                    common | {"error": reasons.get(index, f"{file.name}: no {looked_for(self.detector)} found")}
                )
        return rows

    def _columns(self, face: Face) -> dict[str, Any]:
        embedder, _ = self.model.embedder_for(face.species)
        return {
            "box_xyxy_px": list(face.box_xyxy_px),
            "score": face.score,
            "quality": face.quality,
            "species": face.species,
            "embedding": face.embedding,
            "file_id": embedder.bundle.file_id,
        }


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
