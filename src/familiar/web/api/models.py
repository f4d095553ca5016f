"""Base classes and field types of what the API sends and receives.

A string under a field is its description in the OpenAPI document.
"""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from familiar.core.field_types import LARGEST_NUMBER


class ApiModel(BaseModel):
    """Base class of what the API sends and receives."""

    model_config = ConfigDict(from_attributes=True, allow_inf_nan=False, use_attribute_docstrings=True)


class RequestBody(ApiModel):
    """Base class of what the API receives. Unknown keys are rejected, so that typos are not silently ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _float_to_int(value: object) -> object:
    """Convert 3.0 to 3: equal in JSON, but not to a strict int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE_NUMBER = BeforeValidator(_float_to_int)

Number = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, examples=[17])]
"""Number of a photo, face or identity."""

RequestNumber = Annotated[Number, WHOLE_NUMBER]
