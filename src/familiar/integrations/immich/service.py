"""One request of an Immich server: which tasks it has, and the answer to them."""

from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from familiar import Face
from familiar.integrations.immich.entries import FACES, ImmichError, parse_entries
from familiar.integrations.immich.recognition import ANY_NAME, Recognition, UploadedPhoto
from familiar.integrations.immich.upstream import Upstream


async def predict(
    entries: str | None,
    photo: UploadedPhoto | None,
    text: str | None,
    recognition: Recognition,
    upstream: Upstream | None,
) -> dict[str, Any]:
    """Answer a request.

    Args:
        entries: the form's field of that name: JSON.
        photo: the form's image.
        text: the form's text.
        recognition: recognizes faces.
        upstream: answers all other tasks.

    Returns:
        The JSON of the answer.

    Raises:
        ImmichError: the request is none of Immich's, or cannot be answered.
    """
    if entries is None:
        raise ImmichError(HTTPStatus.UNPROCESSABLE_ENTITY, "bad-entries", "the form has no field entries")
    tasks = parse_entries(entries)
    if photo is None and text is None:
        raise ImmichError(HTTPStatus.BAD_REQUEST, "no-input", "the form has neither an image nor a text")
    if tasks.faces is not None and photo is None:
        raise ImmichError(HTTPStatus.BAD_REQUEST, "no-input", f"{FACES} needs an image")
    if tasks.others and upstream is None:
        raise ImmichError(
            HTTPStatus.NOT_IMPLEMENTED,
            "faces-only",
            f"familiar has no models for {', '.join(tasks.others)}: start it with --upstream and the URL of "
            "Immich's own machine-learning server, or turn that off in Immich",
        )
    answer: dict[str, Any] = {}
    if tasks.others and upstream is not None:
        answer |= await upstream.predict(tasks.others, photo, text)
    if tasks.faces is not None and photo is not None:
        (width, height), faces = await recognition.recognize(photo, tasks.faces.model, tasks.faces.min_score)
        answer |= {FACES: [_describe(face) for face in faces], "imageHeight": height, "imageWidth": width}
    return answer


def _describe(face: Face) -> dict[str, Any]:
    assert face.embedding is not None
    x1, y1, x2, y2 = face.box_xyxy_px
    return {
        "boundingBox": {"x1": x1, "y1": y1, "x2": x2, "y2": y2},
        # A text, since Immich passes it to its database as it is.
        "embedding": "[" + ",".join(f"{number:.7g}" for number in face.embedding.tolist()) + "]",
        "score": face.score,
    }


def parse_models(models: Sequence[str]) -> dict[str, list[Path]]:
    """Parse models as the command line has them: MODEL, or NAME=MODEL for one of Immich's names.

    >>> parse_models(["person-mobile", "pets=pet-nano"])
    {'': [PosixPath('person-mobile')], 'pets': [PosixPath('pet-nano')]}
    """
    by_name: dict[str, list[Path]] = {}
    for model in models:
        name, separator, path = model.partition("=")
        if not separator or Path(model).exists():
            name, path = ANY_NAME, model
        by_name.setdefault(name, []).append(Path(path))
    return by_name
