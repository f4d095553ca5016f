"""What an Immich server asks for: the JSON document `entries` of its requests."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from familiar import FamiliarError
from familiar.core.json_text import parse_json

FACES = "facial-recognition"
DETECTION, RECOGNITION = "detection", "recognition"
TASKS = (FACES, "clip", "ocr")
DEFAULT_MIN_SCORE = 0.7
MAX_NAME_CHARACTERS = 200


class ImmichError(FamiliarError):
    """Why a request is not answered.

    Args:
        status: of the HTTP answer.
        kind: of the error, for programs.
        detail: for people.
    """

    def __init__(self, status: HTTPStatus, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.kind = status, kind


@dataclass(frozen=True)
class RecognitionTask:
    """A request to find and embed the faces of a photo.

    Attributes:
        model: Immich's name of the recognition model.
        min_score: faces that the detector is less sure of are left out, in [0, 1].
    """

    model: str
    min_score: float


@dataclass(frozen=True)
class Entries:
    """What one request asks for.

    Attributes:
        faces: None: nothing of faces.
        others: the entries of other tasks, as Immich sent them, by the name of the task.
    """

    faces: RecognitionTask | None
    others: dict[str, Any]


def parse_entries(text: str) -> Entries:
    """Parse the `entries` of a request.

    Raises:
        ImmichError: 422, it is not what an Immich server sends; 400, faces are to be recognized without being detected,
            or to be detected without being recognized.
    """
    try:
        tasks = parse_json(text)
    except ValueError as error:
        raise _invalid("entries is not JSON") from error
    if not isinstance(tasks, dict) or not tasks:
        raise _invalid("entries is not an object with a task")
    unknown = [name for name in tasks if name not in TASKS]
    if unknown:
        raise _invalid(f"no task of these: {', '.join(TASKS)}")
    models = {name: _models(name, types) for name, types in tasks.items()}
    others = {name: tasks[name] for name in tasks if name != FACES}
    return Entries(_face_task(models[FACES]) if FACES in models else None, others)


def _models(task: str, types: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the model's name and the options of each type of a task."""
    if not isinstance(types, dict) or not types:
        raise _invalid(f"{task} has no model")
    models: dict[str, tuple[str, dict[str, Any]]] = {}
    for kind, entry in types.items():
        name = entry.get("modelName") if isinstance(entry, dict) else None
        options = entry.get("options") or {} if isinstance(entry, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS or not isinstance(options, dict):
            raise _invalid(f"{task} has a model without a modelName, or with options that are no object")
        models[kind] = name, options
    return models


def _face_task(models: dict[str, tuple[str, dict[str, Any]]]) -> RecognitionTask:
    if set(models) != {DETECTION, RECOGNITION}:
        raise ImmichError(
            HTTPStatus.BAD_REQUEST, "bad-entries", f"{FACES} needs a model for {DETECTION} and one for {RECOGNITION}"
        )
    score = models[DETECTION][1].get("minScore", DEFAULT_MIN_SCORE)
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise _invalid("minScore must be a number from 0 to 1")
    return RecognitionTask(models[RECOGNITION][0], float(score))


def _invalid(detail: str) -> ImmichError:
    return ImmichError(HTTPStatus.UNPROCESSABLE_ENTITY, "bad-entries", detail)
