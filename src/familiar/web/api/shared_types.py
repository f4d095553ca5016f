"""What the API sends, as pydantic models made from the types that gallery, API and client share.

`core.gallery_types` and `core.recognition_types` declare the fields, and describe them in their docstrings.
"""

import dataclasses
import functools
import inspect
import re
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from fastapi.routing import APIRoute
from jaxtyping import AbstractArray
from pydantic import BeforeValidator, Field, create_model

from familiar.core import field_types
from familiar.core.field_types import LARGEST_NUMBER, is_in_api
from familiar.core.terminal_text import printable
from familiar.web.api.models import WHOLE_NUMBER, ApiModel, RequestBody

# By the text with which a type of `core.field_types` is annotated.
CONSTRAINTS: dict[str, tuple[Any, ...]] = {
    get_args(shared)[1]: constraints
    for shared, constraints in (
        (field_types.Number, (Field(ge=1, le=LARGEST_NUMBER, examples=[17]),)),
        (field_types.Text, (BeforeValidator(printable),)),  # JSON cannot represent bytes that are not UTF-8
        (field_types.FaceIdentity, ()),
        (field_types.Name, (Field(examples=["Mia"]),)),
        (field_types.Similarity, (Field(examples=[0.73]),)),
        (field_types.Probability, (Field(examples=[0.98]),)),
    )
}
ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class ApiRoute(APIRoute):
    """A route to a function that returns values of shared types."""

    def __init__(self, path: str, endpoint: Any, **options: Any) -> None:
        hint = get_type_hints(endpoint, include_extras=True)["return"]
        inspect.unwrap(endpoint).__annotations__["return"] = api_type(hint)  # where FastAPI looks for it
        super().__init__(path, endpoint, **options)


def api_type(shared: Any, base: type[ApiModel] = ApiModel) -> Any:
    """Return the type by which the API documents and validates a shared type.

    Args:
        shared: a dataclass, or another type that its fields may have.
        base: of the models: `ApiModel` of what the API sends, `RequestBody` of what it receives.
    """
    origin, arguments = get_origin(shared) or shared, get_args(shared)
    if dataclasses.is_dataclass(origin):
        return _model(shared, base)
    if origin is Annotated:
        constraints = [constraint for note in arguments[1:] for constraint in CONSTRAINTS.get(note, ())]
        constraints += [WHOLE_NUMBER] if base is RequestBody and arguments[0] is int else []
        return functools.reduce(lambda hint, each: Annotated[hint, each], constraints, api_type(arguments[0], base))
    if isinstance(origin, type) and issubclass(origin, AbstractArray | np.ndarray):
        rows = list[float] if len(shared.dims) == 1 else list[list[float]]
        return Annotated[rows, BeforeValidator(np.ndarray.tolist)]
    if isinstance(origin, type) and issubclass(origin, tuple):
        items = arguments or tuple(get_type_hints(origin).values())  # of a NamedTuple, such as a box
        size = Field() if items[-1] is ... else Field(min_length=len(items), max_length=len(items))
        return Annotated[list[api_type(items[0], base)], size]
    if origin in (Union, types.UnionType):
        return Union[tuple(api_type(each, base) for each in arguments)]  # noqa: UP007 - of as many as there are
    if shared is type(None):
        return None
    if arguments and isinstance(origin, type):  # such as a list, or the events of a stream
        return types.GenericAlias(origin, tuple(api_type(each, base) for each in arguments))
    return shared


@functools.cache
def _model(shared: Any, base: type[ApiModel]) -> type[ApiModel]:
    cls, arguments = get_origin(shared) or shared, get_args(shared)
    parameters = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=True))
    docs = [inspect.cleandoc(each.__doc__ or "") for each in reversed(cls.__mro__)]
    descriptions = dict(match for doc in docs for match in ATTRIBUTE.findall(doc))
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        if is_in_api(hint):
            known = [note for note in get_args(hint) if get_origin(hint) is Annotated and note in CONSTRAINTS]
            text = re.sub(r"\bNone\b", "null", " ".join(descriptions.get(name, "".join(known)).split()))
            if unbound := getattr(hint, "__parameters__", ()):
                hint = hint[tuple(parameters[each] for each in unbound)]
            fields[name] = (Annotated[api_type(hint, base), Field(description=text or None)], ...)
    name = "_".join([cls.__name__, *(argument.__name__ for argument in arguments)])
    suffix = "Request" if base is RequestBody else ""
    return create_model(name + suffix, __base__=base, __doc__=docs[-1].partition("\n\n")[0], **fields)
