"""Types of fields of the values that the gallery, the HTTP API and the client share, with their documentation.

A plain install has no pydantic: `web.api.schemas` makes from these what the HTTP API documents and checks.
"""

from dataclasses import dataclass
from typing import Annotated, Any, get_args

import numpy as np
from jaxtyping import Float32

LARGEST_NUMBER = 2**53 - 1
"""Every JSON parser reads it exactly; a gallery never counts this far."""


@dataclass(frozen=True)
class FieldSpec:
    """Documentation and constraints of a field, as metadata of `Annotated`.

    A field that is described in its class's docstring, under "Attributes", has that description instead.

    Attributes:
        description: Meaning of the values.
        examples: Values for the API's documentation.
        minimum: The smallest value.
        maximum: The largest value.
        is_free_text: It may contain control characters, or bytes that are not UTF-8, which JSON cannot represent.
        is_in_api: Whether the HTTP API has it.
    """

    description: str | None = None
    examples: tuple[Any, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    is_free_text: bool = False
    is_in_api: bool = True


def is_in_api(hint: Any) -> bool:
    """Tell whether the HTTP API has a field of this type."""
    return all(spec.is_in_api for spec in get_args(hint)[1:] if isinstance(spec, FieldSpec))


Number = Annotated[int, FieldSpec(examples=(17,), minimum=1, maximum=LARGEST_NUMBER)]
"""Number of a photo, face or identity."""
Text = Annotated[str, FieldSpec(is_free_text=True)]
Name = Annotated[str | None, FieldSpec("None: none.", ("Mia",))]
FaceIdentity = Annotated[int | None, FieldSpec("The face's identity; None: unassigned.", (3,))]
Similarity = Annotated[float, FieldSpec("Cosine similarity, in [-1, 1].", (0.73,))]
Probability = Annotated[float | None, FieldSpec("In [0, 1]; None: the model was never calibrated.", (0.98,))]
Vector = Float32[np.ndarray, " d"]
Landmarks = Float32[np.ndarray, "p 2"]
NOT_IN_API = FieldSpec(is_in_api=False)
