"""Types of fields of the values that the gallery, the HTTP API and the client share.

A plain install has no pydantic: `web.api.shared_types` makes the models by which the HTTP API documents and sends them.
A text in `Annotated` describes a field that its class does not describe itself.
"""

from typing import Annotated, Any, get_args

import numpy as np
from jaxtyping import Float32

LARGEST_NUMBER = 2**53 - 1
"""Every JSON parser reads it exactly; a gallery never counts this far."""

NOT_IN_API = "not in the HTTP API"
"""Metadata of `Annotated`: the HTTP API does not send the field."""


def is_in_api(hint: Any) -> bool:
    """Tell whether the HTTP API has a field of this type."""
    return NOT_IN_API not in get_args(hint)[1:]


Number = Annotated[int, "Number of a photo, face or identity."]
Text = Annotated[str, "It may contain control characters, or bytes that are not UTF-8."]
Name = Annotated[str | None, "None: none."]
FaceIdentity = Annotated[int | None, "The face's identity; None: unassigned."]
Similarity = Annotated[float, "Cosine similarity, in [-1, 1]."]
Probability = Annotated[float | None, "In [0, 1]; None: the model was never calibrated."]
Vector = Float32[np.ndarray, " d"]
Landmarks = Float32[np.ndarray, "p 2"]
