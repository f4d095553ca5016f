"""Background: how much of what is recognized is not in the face, but in what the photo shows around it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from familiar.core.errors import NothingToMeasure
from familiar.core.types import Crop, Face, Photo
from familiar.detection.detector import Detector, looked_for
from familiar.detection.detectors import CROP_DETECTORS, CenterSquare, WholePhoto
from familiar.embedding.photos import stack_embeddings
from familiar.evaluation.centering import center_on_collection
from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult
from familiar.evaluation.perturbation import make_setup, map_photos, measure_results, run_setup
from familiar.evaluation.results.figures import Figures, make_figures

MAX_PHOTOS = 500  # in each of them a face is searched for
GROWTH = 0.1  # of the box's width and height, on each side: so that no rim of the face is left in the background
GRAY = np.uint8(128)  # the middle of 0 to 255
PICTURES = ("whole", "face", "background")

Pixels = UInt8[np.ndarray, "s s 3"]


def has_face_detector(context: EvaluationContext) -> bool:
    """Tell whether there is a detector that looks for faces: the one of the evaluation, or the model's."""
    return _finds_faces(context.detector) or context.model.detector_name not in CROP_DETECTORS


def background(context: EvaluationContext) -> SuiteResult:
    """Measure recall@1 and ROC AUC of whole pictures, of faces alone and of backgrounds alone.

    A picture is a crop as the network takes it. The detector searches it again; its best box, a tenth larger on each
    side, is the face. All else is gray in `face`, and the box is gray in `background`. Each is searched for among
    pictures of its kind and, if the means of the photos are subtracted, less the means of these. Photos without a face
    found are counted and left out of all three. If there are more than 500 photos, they are sampled. With several
    bundles, every picture is embedded by that of the photo's species.
    """
    detector = _face_detector(context)
    rows = context.sample_rows(MAX_PHOTOS)
    batches = map_photos(context, rows, lambda batch: _embed_batch(context, detector, batch))
    with_face = np.concatenate([batch_rows for batch_rows, _ in batches])
    if not len(with_face):
        raise NothingToMeasure(
            f"background: no {looked_for(detector)} found in any of {len(rows)} photos; name another detector with "
            "--detector"
        )
    labels = context.labels[with_face]
    setup = make_setup(labels, np.arange(len(with_face)))

    def measure(picture: str) -> Figures:
        embeddings = np.concatenate([batch_embeddings[picture] for _, batch_embeddings in batches])
        if context.uncentered_model is not None:
            part = replace(context.select_rows(with_face), model=context.uncentered_model, embeddings=embeddings)
            embeddings = center_on_collection(part).embeddings
        return make_figures(*measure_results(run_setup(setup, embeddings, embeddings)))

    values = {
        "photos": len(with_face),
        "identities": len(np.unique(labels)),
        "photos_without_face": len(rows) - len(with_face),
        "seed": SEED,
        **{picture: measure(picture) for picture in PICTURES},
    }
    return SuiteResult(make_figures(values))


def split_picture(rgb_u8: Pixels, box_xyxy_px: Sequence[float]) -> tuple[Pixels, Pixels]:
    """Return the face alone and the background alone: the one is gray where the other is not.

    Args:
        rgb_u8: the whole picture.
        box_xyxy_px: of the face, in its pixels; enlarged by `GROWTH`.
    """
    left, top, right, bottom = box_xyxy_px
    grown_x, grown_y = GROWTH * (right - left), GROWTH * (bottom - top)
    columns = slice(max(round(left - grown_x), 0), max(round(right + grown_x), 0))
    lines = slice(max(round(top - grown_y), 0), max(round(bottom + grown_y), 0))
    face, rest = np.full_like(rgb_u8, GRAY), rgb_u8.copy()
    face[lines, columns] = rgb_u8[lines, columns]
    rest[lines, columns] = GRAY
    return face, rest


def _finds_faces(detector: Detector | None) -> bool:
    return detector is not None and not isinstance(detector, WholePhoto | CenterSquare)


def _face_detector(context: EvaluationContext) -> Detector:
    """Return the detector that the photos were cropped with; if it looks for nothing, the one that the model names."""
    if not has_face_detector(context):
        raise NothingToMeasure(
            "background: takes a detector that finds faces, and the model names none; name one with --detector pets "
            "or --detector auto"
        )
    return context.model.detector(context.detector if _finds_faces(context.detector) else None)


def _embed_batch(
    context: EvaluationContext, detector: Detector, batch: Int64[np.ndarray, " b"]
) -> tuple[Int64[np.ndarray, " k"], dict[str, Float32[np.ndarray, "k d"]]]:
    """Embed the pictures of a batch, as they are.

    Returns:
        The rows of the photos in which a face was found, and their embeddings by kind of picture.
    """
    model = context.uncentered_model or context.model
    rows: list[int] = []
    faces: dict[str, list[Face]] = {picture: [] for picture in PICTURES}
    for row in batch.tolist():
        face = context.face(row)
        crop = face.crop
        assert crop is not None
        box = _face_box(crop, detector)
        if box is None:
            continue
        rows.append(row)
        pictures = (crop.rgb_u8, *split_picture(crop.rgb_u8, box))
        for picture, pixels in zip(PICTURES, pictures, strict=True):
            faces[picture].append(replace(face, crop=replace(crop, rgb_u8=pixels)))
    embeddings = {
        picture: stack_embeddings(model.embed_faces(altered, flip=context.flip)) if rows else model.embed([])
        for picture, altered in faces.items()
    }
    return np.array(rows, np.int64), embeddings


def _face_box(crop: Crop, detector: Detector) -> Sequence[float] | None:
    faces = detector.detect(Photo(crop.rgb_u8, crop.source, (crop.size_px, crop.size_px)))
    return faces[0].box_xyxy_px if faces else None
