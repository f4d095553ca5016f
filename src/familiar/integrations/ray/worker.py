"""What a worker does: embed the photos of a part and write its Parquet file."""

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2

from familiar import Detector, Embedder, FamiliarError, Photo, UnreadablePhoto, datasets
from familiar.integrations.ray.parts import EmbeddedWith, PhotoFile, count_rows, part_path, write_part

MAX_DEATHS = 3  # of workers while they decode the same photo
MAX_ATTEMPTS = 20  # to embed a part; machines that are taken away for others end some


@dataclass(frozen=True)
class EmbeddingSettings:
    """How photos are embedded.

    Attributes:
        models: as for `Embedder`; the same on all machines.
        detector: its name, as for `build_detector`; None: the model's.
        detector_model: path of the detector's network.
        flip: as in `Embedder.embed`.
        species: of all faces; None: what the detector says.
        providers: execution providers of ONNX Runtime; None: the CPU.
    """

    models: tuple[str, ...]
    detector: str | None = None
    detector_model: Path | None = None
    flip: bool = False
    species: str | None = None
    providers: tuple[str, ...] | None = None

    def open(self, threads: int | None = None) -> tuple[Embedder, Detector, EmbeddedWith]:
        """Open the model and its detector.

        Args:
            threads: as for `Embedder`.

        Returns:
            Both, and what is stored with the embeddings.
        """
        model = Embedder(self.models, threads, providers=self.providers)
        detector = model.detector(self.detector, self.detector_model)
        embedded_with = {
            "space_id": model.space[0],
            "embedding_dim": model.space[1],
            "file_ids": sorted(bundle.file_id for bundle in model.bundles.values()),
            "detector": self.detector or type(detector).__name__,
            "flip": self.flip,
        }
        return model, detector, embedded_with


class Worker:
    """Embeds parts, one after the other: what Ray Data constructs once in each process and calls with parts.

    Args:
        settings: how.
        folder: of the Parquet files; all workers reach it at this path.
    """

    def __init__(self, settings: EmbeddingSettings, folder: Path) -> None:
        cv2.setNumThreads(1)  # the other cores have workers of their own
        self.settings = settings
        self.folder = folder
        self.model, self.detector, self.embedded_with = settings.open(threads=1)

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[bytes]]:
        """Embed the part that the rows of photos are, and return its counts or what was raised."""
        photos = [pickle.loads(photo) for photo in rows["photo"]]
        try:
            return {"result": [pickle.dumps(self.embed_part(photos))]}
        except FamiliarError as error:  # Ray would raise an error of its own, without this cause
            return {"result": [pickle.dumps(error)]}

    def embed_part(self, photos: Sequence[PhotoFile]) -> dict[str, int]:
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
            if journal.attempts >= MAX_ATTEMPTS:
                attempts.unlink()
                raise FamiliarError(
                    f"{path}: the workers that tried to embed {photos[0].name} to {photos[-1].name} were killed "
                    f"{MAX_ATTEMPTS} times, possibly for lack of memory; repeat the command to try again"
                )
            write_part(path, list(self._rows(photos, journal)), self.embedded_with)
        attempts.unlink(missing_ok=True)
        return count_rows(path)

    def _rows(self, photos: Sequence[PhotoFile], journal: "Journal") -> Iterator[dict[str, Any]]:
        def open_noted(number: int, *, min_side_px: int | None = None) -> Photo:
            if journal.deaths_at(number) >= MAX_DEATHS:
                raise UnreadablePhoto(f"{photos[number].name}: ended the process that read it {MAX_DEATHS} times")
            journal.note(str(number))
            try:
                return datasets.open_photo(photos[number].photo, min_side_px=min_side_px)
            finally:
                journal.note("read")

        settings = self.settings
        results = self.model.faces(
            range(len(photos)), self.detector, open_photo=open_noted, species=settings.species, flip=settings.flip
        )
        for file, result in zip(photos, results, strict=True):
            common = {"photo": file.name, "size_bytes": file.state[0], "modified_ns": file.state[1]}
            faces, errors = ((), (result,)) if isinstance(result, FamiliarError) else (result.faces, result.skipped)
            for number, face in enumerate(faces, start=1):
                yield common | {
                    "face": number,
                    "box_xyxy_px": list(face.box_xyxy_px),
                    "score": face.score,
                    "quality": face.quality,
                    "species": face.species,
                    "embedding": face.embedding,
                    "file_id": self.model.only(face.species)[0].bundle.file_id,
                }
            if errors or not faces:
                yield common | {"error": str(next(iter(errors), f"{file.name}: no face found"))}


class Journal:
    """What each attempt to embed a part was doing last: a file next to the part's.

    Args:
        path: of the file.

    Attributes:
        attempts: number of earlier attempts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        earlier = path.read_text().split("start\n")[1:] if path.exists() else []
        self.attempts = len(earlier)
        self._last_lines = Counter(attempt.strip().rpartition("\n")[2] for attempt in earlier)
        self.note("start")

    def note(self, line: str) -> None:
        """Write what begins now; the system has it even if the process is killed."""
        with self._path.open("a") as file:
            file.write(f"{line}\n")

    def deaths_at(self, photo: int) -> int:
        """Return how many attempts ended while they decoded a photo."""
        return self._last_lines[str(photo)]
