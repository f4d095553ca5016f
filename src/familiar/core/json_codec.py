"""Dataclasses to JSON and back, by the types of their fields.

Nothing is guessed: "false" is no bool, 3.0 no int, True no number, and NaN is refused, as JSON has no such number.
Lists become tuples and arrays, an integer may stand for a float. An error names the key as a dotted path.
"""

import contextlib
import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import AbstractArray

from familiar.core.field_types import is_in_api

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

_SCALARS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}


class CustomType(NamedTuple):
    """Conversion of a class that JSON does not write as an object of its fields.

    Attributes:
        to_json: takes a value, and a function that converts a part of it.
        from_json: takes JSON, and a function that converts a part of it to a type (type last). It raises a ValueError,
            or a `FamiliarError` that is passed on.
        key_types: returns the types of its JSON's keys; None: it is a single value.
    """

    to_json: Callable[[Any, Callable[[Any], Any]], Any]
    from_json: Callable[[Any, Callable[[Any, Any], Any]], Any]
    key_types: Callable[[], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class JsonCodec:
    """Conversion of dataclasses to JSON and back.

    A dict may have integers as keys, which JSON writes as texts. A missing key is an error even if the field has a
    default, which is for code that makes a value: what was written has all keys.

    Attributes:
        defaults: whether a missing key takes the field's default instead.
        ignores_unknown_keys: whether unknown keys are left out instead of being an error.
        custom: classes that are converted in another way, with their subclasses when they are written.
    """

    defaults: bool = False
    ignores_unknown_keys: bool = False
    custom: Mapping[type, CustomType] = field(default_factory=dict[type, CustomType])

    def to_json(self, value: Any) -> Any:
        """Convert a value, which may be or hold dataclasses, to what `json.dumps` takes."""
        return self._converter.unstructure(value)

    def from_json(self, target: type[T], content: Any, document: str = "the document") -> T:
        """Convert parsed JSON to a value.

        Args:
            target: a dataclass, or another type that a field may have.
            content: the parsed JSON.
            document: what errors call the whole.

        Raises:
            ValueError: a key is unknown (the message suggests the most similar one) or missing, or a value has another
                type or is not accepted by its class.

        >>> Crop = dataclasses.make_dataclass("Crop", [("size_px", int)])
        >>> JsonCodec().from_json(Crop, {"size": 112})
        Traceback (most recent call last):
        ...
        ValueError: unknown key 'size'; did you mean 'size_px'?
        """
        from cattrs.errors import BaseValidationError

        try:
            return self._converter.structure(content, target)
        except (BaseValidationError, ValueError) as error:
            raise ValueError(self._explain(error, target, document)) from error

    def key_types(self, target: Any, prefix: str = "") -> dict[str, Any]:
        """Return the types of all keys of a dataclass's JSON, by their dotted paths such as `optimizer.lr`.

        Args:
            target: the dataclass.
            prefix: what the paths begin with.
        """
        custom = self.custom.get(target)
        types = field_types(target) if custom is None else custom.key_types and custom.key_types()
        if not types:
            return {prefix.rstrip("."): target}
        return {path: hint for name in types for path, hint in self.key_types(types[name], f"{prefix}{name}.").items()}

    def _explain(self, error: BaseException, target: Any, document: str) -> str:
        """Return the message for the first cause of an error; raise the cause if it is not about the JSON."""
        from cattrs.errors import (
            AttributeValidationNote,
            BaseValidationError,
            ForbiddenExtraKeysError,
            IterableValidationNote,
        )

        names: list[str] = []
        fields: tuple[str, ...] = ()  # of the class whose constructor raised the error
        while isinstance(error, BaseValidationError):
            fields = tuple(field_types(error.cl))
            # Before the missing ones, which a misspelled key explains.
            unknown = [each for each in error.exceptions if isinstance(each, ForbiddenExtraKeysError)]
            error = (*unknown, *error.exceptions)[0]
            for note in getattr(error, "__notes__", ()):
                if isinstance(note, AttributeValidationNote | IterableValidationNote):
                    names.append(str(note.name if isinstance(note, AttributeValidationNote) else note.index))
                    fields = ()
        path, message = ".".join(names), str(error)
        prefix = f"{path}." if path else ""
        if isinstance(error, ForbiddenExtraKeysError):
            key = prefix + min(error.extra_fields)
            return f"unknown key {key!r}" + suggest_key(
                key, [*self.key_types(target), *(prefix + name for name in field_types(error.cl))]
            )
        if not isinstance(error, ValueError):
            vars(error).pop("__notes__", None)  # cattrs' words, which would be printed with it
            raise error
        if isinstance(error, _MissingKey):
            return f"the key {prefix}{message} is missing"
        if fields and (not path or message.startswith(fields)):
            return prefix + message
        return f"{path or document}: {message}"

    @cached_property
    def _converter(self) -> "Converter":
        from cattrs import Converter  # takes .04 s to import, which most commands do not need
        from cattrs.gen import (
            make_dict_structure_fn,
            mapping_structure_factory,  # pyright: ignore[reportUnknownVariableType]
        )

        converter = Converter(
            unstruct_collection_overrides={tuple: list}, forbid_extra_keys=not self.ignores_unknown_keys
        )

        def dataclass_hook(target: Any) -> Any:
            structure = make_dict_structure_fn(target, converter)
            required = _required_fields(target, defaults=self.defaults)

            def convert(content: Any, _: Any) -> Any:
                _require_object(content)
                missing = [name for name in required if name not in content]
                if missing and (self.ignores_unknown_keys or content.keys() <= field_types(target).keys()):
                    raise _MissingKey(missing[0])
                return structure(content, target)

            return convert

        def tuple_hook(target: Any) -> Any:
            types = get_args(target)
            hooks = [converter.get_structure_hook(each) for each in types if each is not ...]

            def convert(content: Any, _: Any) -> Any:
                _require_list(content)
                if types[-1] is ...:
                    return tuple(hooks[0](item, types[0]) for item in content)
                if len(content) != len(types):
                    raise ValueError(f"expected {len(types)} entries, got {len(content)}")
                return tuple(hook(item, each) for hook, item, each in zip(hooks, content, types, strict=True))

            return convert

        def dict_hook(target: Any) -> Any:
            key_type = get_args(target)[0]
            structure = mapping_structure_factory(
                target, converter, key_type=_IntegerText if key_type is int else key_type
            )

            def convert(content: Any, _: Any) -> Any:
                _require_object(content)
                return structure(content, target)

            return convert

        for scalar in _SCALARS:
            converter.register_structure_hook(scalar, _to_scalar)
        converter.register_structure_hook(_IntegerText, lambda text, _: _to_integer(text))
        converter.register_structure_hook_func(lambda hint: get_origin(hint) is Literal, _to_literal)
        converter.register_structure_hook_func(_is_array, _to_array)
        converter.register_structure_hook_factory(lambda hint: get_origin(hint) is tuple, tuple_hook)
        converter.register_structure_hook_factory(lambda hint: get_origin(hint) is dict, dict_hook)
        converter.register_structure_hook_factory(lambda hint: bool(field_types(hint)), dataclass_hook)
        converter.register_unstructure_hook_func(_is_array, lambda array: array.tolist())
        converter.register_unstructure_hook_func(
            lambda hint: (get_origin(hint) or hint) is dict,
            lambda value: {str(key): converter.unstructure(item) for key, item in value.items()},
        )
        for cls, custom in self.custom.items():
            _register(converter, cls, custom)
        return converter


DOCUMENTS = JsonCodec()
"""The codec of what files and databases store."""


def field_types(target: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name, with the metadata of `Annotated`; of another type, none."""
    cls = get_origin(target) or target
    if not dataclasses.is_dataclass(cls):
        return {}
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: hints[each.name] for each in dataclasses.fields(cls)}


def suggest_key(key: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown key: the most similar known one.

    Args:
        key: the unknown key.
        known: dotted paths; without their groups, and with initials for words, they are similar too.
    """
    known = list(known)
    similar = [each for each in known if each.endswith(f".{key}")]
    initials = "".join(word[:1] for word in key.rpartition(".")[2].split("_"))  # learning_rate: lr
    similar += [each for each in known if each.endswith(f".{initials}")]
    similar += difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    return f"; did you mean {similar[0]!r}?" if similar else ""


class _MissingKey(ValueError):
    """A key is missing; the message is its name."""


class _IntegerText:
    """The type of a dict's keys that are integers, which are texts in JSON."""


def _register(converter: "Converter", cls: type, custom: CustomType) -> None:
    converter.register_structure_hook_func(
        lambda hint: hint is cls, lambda content, _: custom.from_json(content, converter.structure)
    )
    converter.register_unstructure_hook_func(
        lambda hint: isinstance(hint, type) and issubclass(hint, cls),
        lambda value: custom.to_json(value, converter.unstructure),
    )


def _is_array(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray | np.ndarray)


def _required_fields(target: Any, *, defaults: bool) -> tuple[str, ...]:
    """List the fields that JSON must have: all that are written, or those without a default."""
    cls = get_origin(target) or target
    has_default = {
        each.name
        for each in dataclasses.fields(cls)
        if each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
    }
    types = field_types(target)
    return tuple(name for name in types if is_in_api(types[name]) and not (defaults and name in has_default))


def _require_list(content: Any) -> None:
    if not isinstance(content, list | tuple):
        raise ValueError(f"{content!r:.40} has the wrong type, expected a list")


def _require_object(content: Any) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"expected an object, got {content!r:.40}")


def _to_scalar(content: Any, expected: type) -> Any:
    accepted, description = _SCALARS[expected]
    if type(content) not in accepted:
        raise ValueError(f"{content!r:.40} has the wrong type, expected {description}")
    if isinstance(content, float) and not math.isfinite(content):
        raise ValueError(f"{content} is not a finite number")
    return content


def _to_literal(content: Any, expected: Any) -> Any:
    allowed = get_args(expected)
    if content not in allowed:
        raise ValueError(f"{content!r:.40} has the wrong type or value, expected {', '.join(map(str, allowed))}")
    return content


def _to_integer(text: Any) -> int:
    if not (isinstance(text, str) and text.isascii() and text.isdecimal()):
        raise ValueError("the key is not a whole number")
    return int(text)


def _to_array(content: Any, expected: Any) -> Any:
    """Convert lists of numbers to an array of the dtype and number of dimensions of a jaxtyping annotation."""
    dtype = np.dtype(expected.dtypes[0])
    accepted = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}[dtype.kind]
    items = np.array(content, object)  # of rows of different lengths, the items are lists
    if {type(item) for item in items.ravel()} <= accepted:
        with contextlib.suppress(OverflowError), np.errstate(over="ignore"):
            array = items.astype(dtype)
            if np.isfinite(array).all() and isinstance(array, expected):
                return array
    raise ValueError(f"{content!r:.40} has the wrong type or shape, expected {expected.__name__}")
