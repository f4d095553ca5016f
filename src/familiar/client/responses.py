"""Convert the server's responses to the values of `familiar.core` that the gallery has too."""

from typing import Any

from familiar.core.errors import FamiliarError
from familiar.core.json_codec import JsonCodec

RESPONSES = JsonCodec(ignores_unknown_keys=True)  # of a newer server


def parse_response(target: Any, content: Any) -> Any:
    """Convert JSON to a value of a type; unknown keys are ignored.

    Raises:
        FamiliarError: the JSON does not fit the type.

    >>> from familiar.core.gallery_types import CorrectionResult
    >>> parse_response(CorrectionResult, {"identity": 3, "propagated_faces": 2, "news": True})
    CorrectionResult(identity=3, propagated_faces=2)
    """
    try:
        return RESPONSES.from_json(target, content)
    except ValueError as error:
        raise FamiliarError("unexpected response; the versions of client and server differ, update familiar") from error
