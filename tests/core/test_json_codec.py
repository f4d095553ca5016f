"""JSON of dataclasses: what was written is read to the last bit, and everything else is refused by its key."""

import dataclasses
import json
import re
from dataclasses import dataclass, field
from types import NoneType
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Bool, Float32, Float64, Int64, UInt8

from familiar.core import gallery_types, recognition_types
from familiar.core.calibration import Calibration
from familiar.core.errors import BadRecipe
from familiar.core.field_types import NOT_IN_API, is_in_api
from familiar.core.gallery_types import AssignmentConfidence, GalleryFace, GalleryPhoto, IdentitySummary, Page
from familiar.core.json_codec import DOCUMENTS, CustomType, JsonCodec, field_types, suggest_key
from familiar.core.recognition_types import EmbeddedFace, Hit, PhotoVerificationResult, SearchResult
from familiar.core.species_means import SpeciesMeans
from familiar.datasets.folders import DataSpec
from familiar.embedding.bundle import BundleMetadata
from familiar.gallery.store.external_index import ExternalIndex
from familiar.gallery.store.model_reference import ModelReference
from familiar.gallery.store.space import Space
from familiar.photos.preprocessing import Preprocessing


@dataclass(frozen=True)
class Inner:
    share: float | None = None


@dataclass(frozen=True)
class Outer:
    count: int = 3
    name: str = "Mia"
    is_fitted: bool = True
    ratio: float = 0.5
    side: Literal["left", "right"] = "left"
    mean: tuple[float, float] = (0.5, 1)
    lengths: tuple[int, ...] = (1, 2, 3)
    inner: Inner = Inner(0.5)
    other: Inner | None = None
    inners: tuple[Inner, ...] = (Inner(1),)
    by_name: dict[str, Inner] = field(default_factory=lambda: {"a": Inner()})
    by_length: dict[int, Inner] = field(default_factory=lambda: {64: Inner(0.1)})
    anything: dict[str, Any] = field(default_factory=lambda: {"a": [None, {"b": 1}]})

    def __post_init__(self) -> None:
        if self.count > 99:
            raise ValueError(f"count must be at most 99, not {self.count}")


STORED = json.loads(json.dumps(DOCUMENTS.to_json(Outer())))


def test_json_has_all_fields_in_their_order():
    assert DOCUMENTS.to_json(Outer()) == {
        "count": 3,
        "name": "Mia",
        "is_fitted": True,
        "ratio": 0.5,
        "side": "left",
        "mean": [0.5, 1],
        "lengths": [1, 2, 3],
        "inner": {"share": 0.5},
        "other": None,
        "inners": [{"share": 1}],
        "by_name": {"a": {"share": None}},
        "by_length": {"64": {"share": 0.1}},
        "anything": {"a": [None, {"b": 1}]},
    }
    assert list(STORED) == [each.name for each in dataclasses.fields(Outer)]
    assert DOCUMENTS.from_json(Outer, STORED) == Outer()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("count", value, "has the wrong type, expected a whole number") for value in (True, 3.0, 3.9, "3", None, [])),
        *(("name", value, "has the wrong type, expected a text") for value in (3, None, ["Mia"], True)),
        *(("is_fitted", value, "has the wrong type, expected true or false") for value in (1, None, "false", 0.0)),
        *(("ratio", value, "has the wrong type, expected a number") for value in ("0.5", None, True, [0.5])),
        *(("side", value, "has the wrong type or value, expected left, right") for value in ("up", None, 3, [])),
        *(("mean", value, "has the wrong type, expected a list") for value in (None, "ab", 0.5, {"0": 1, "1": 2})),
        *(("inner", value, "expected an object, got") for value in (None, 3, "x", [0.5])),
        *(("by_name", value, "expected an object, got") for value in (None, [["a", {}]], "a")),
    ],
)
def test_value_of_another_type_is_refused(name: str, value: Any, message: str):
    with pytest.raises(ValueError, match=f"^{name}: .*{message}"):
        DOCUMENTS.from_json(Outer, STORED | {name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_number_that_json_does_not_have_is_refused(value: float):
    for stored, path in (({"ratio": value}, "ratio"), ({"inner": {"share": value}}, r"inner\.share")):
        with pytest.raises(ValueError, match=rf"^{path}: -?(nan|inf) is not a finite number$"):
            DOCUMENTS.from_json(Outer, STORED | stored)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mean": [0.5]}, "mean: expected 2 entries, got 1"),
        ({"mean": [0.5, True]}, "mean: True has the wrong type, expected a number"),
        ({"lengths": [1, "2"]}, "lengths: '2' has the wrong type, expected a whole number"),
        ({"inner": {"share": "x"}}, "inner.share: 'x' has the wrong type, expected a number"),
        ({"inners": [{"share": 1}, {"share": "x"}]}, "inners.share: 'x' has the wrong type, expected a number"),
        ({"by_name": {"a": {"share": "x"}}}, "by_name.a.share: 'x' has the wrong type, expected a number"),
        ({"by_name": {"a": None}}, "by_name.a: expected an object, got None"),
        ({"by_length": {"6.5": {"share": 1}}}, "by_length.6.5: the key is not a whole number"),
        ({"count": 100}, "count must be at most 99, not 100"),
        ({"anything": 3}, "anything: expected an object, got 3"),
    ],
)
def test_error_names_the_dotted_path(changed: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        DOCUMENTS.from_json(Outer, STORED | changed)
    assert str(refused.value) == message


def test_error_of_a_constructor_begins_with_the_path_of_its_field():
    @dataclass(frozen=True)
    class Whole:
        part: Outer

    with pytest.raises(ValueError, match=r"^part\.count must be at most 99, not 100$"):
        DOCUMENTS.from_json(Whole, {"part": STORED | {"count": 100}})


@pytest.mark.parametrize("content", [None, 3, "x", []])
def test_document_that_is_no_object_is_named(content: Any):
    with pytest.raises(ValueError, match=r"^a recipe: expected an object, got "):
        DOCUMENTS.from_json(Outer, content, "a recipe")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cuont": 3}, "unknown key 'cuont'; did you mean 'count'?"),
        ({"share": 3}, "unknown key 'share'; did you mean 'inner.share'?"),
        ({"zzzz": 3}, "unknown key 'zzzz'"),
        ({"inner": {"shares": 3}}, "unknown key 'inner.shares'; did you mean 'inner.share'?"),
        ({"other": {"shares": 3, "share": 1}}, "unknown key 'other.shares'; did you mean 'other.share'?"),
    ],
)
def test_unknown_key_is_named_with_the_most_similar_one(changed: dict[str, Any], message: str):
    with pytest.raises(ValueError, match="unknown key") as refused:
        DOCUMENTS.from_json(Outer, STORED | changed)
    assert str(refused.value) == message


@pytest.mark.parametrize("name", list(STORED))
def test_missing_key_is_named_though_its_field_has_a_default(name: str):
    stored = {key: value for key, value in STORED.items() if key != name}
    with pytest.raises(ValueError, match=f"^the key {name} is missing$"):
        DOCUMENTS.from_json(Outer, stored)
    assert JsonCodec(defaults=True).from_json(Outer, stored) == Outer()


def test_missing_key_without_default_is_an_error_in_every_codec():
    class_ = dataclasses.make_dataclass("Named", [("name", str), ("count", int, 3)])
    for codec in (JsonCodec(defaults=True), JsonCodec(ignores_unknown_keys=True)):
        with pytest.raises(ValueError, match=r"^the key name is missing$"):
            codec.from_json(class_, {"count": 4, **({"new": 1} if codec.ignores_unknown_keys else {})})


def test_misspelled_key_is_unknown_rather_than_missing():
    class_ = dataclasses.make_dataclass("Named", [("name", str), ("count", int)])
    with pytest.raises(ValueError, match=r"^unknown key 'nmae'; did you mean 'name'\?$"):
        DOCUMENTS.from_json(class_, {"nmae": "Mia", "count": 4})


def test_unknown_keys_can_be_ignored():
    stored = STORED | {"new": 3, "inner": {"share": 0.5, "new": 3}}
    assert JsonCodec(ignores_unknown_keys=True).from_json(Outer, stored) == Outer()


def test_field_that_the_api_does_not_have_may_be_missing():
    hidden = Annotated[int | None, NOT_IN_API]
    class_ = dataclasses.make_dataclass("Hidden", [("number", int), ("secret", hidden, None)])
    assert DOCUMENTS.from_json(class_, {"number": 3}) == class_(3)


Item = TypeVar("Item")


@dataclass(frozen=True)
class Box(Generic[Item]):
    items: tuple[Item, ...]
    first: Item | None = None


def test_generic_dataclass_takes_the_type_of_its_items():
    stored = {"items": [{"share": 1}], "first": {"share": 2}}
    assert DOCUMENTS.from_json(Box[Inner], stored) == Box((Inner(1),), Inner(2))
    with pytest.raises(ValueError, match=r"^items: 'x' has the wrong type, expected a whole number$"):
        DOCUMENTS.from_json(Box[int], {"items": ["x"], "first": 3})


@dataclass(frozen=True, eq=False)
class Arrays:
    vector: Float32[np.ndarray, " d"]
    table: Float64[np.ndarray, "n 3"]
    counts: Int64[np.ndarray, " n"] | None
    pixels: UInt8[np.ndarray, " n"]
    marks: Bool[np.ndarray, " n"]


ARRAYS = {"vector": [0.5, 1], "table": [[1, 2, 3.5]], "counts": [3], "pixels": [255], "marks": [True]}


def test_arrays_are_lists_of_numbers():
    arrays = DOCUMENTS.from_json(Arrays, ARRAYS)
    dtypes = [array.dtype for array in vars(arrays).values()]
    assert dtypes == [np.float32, np.float64, np.int64, np.uint8, np.bool_]
    assert DOCUMENTS.to_json(arrays) == ARRAYS
    empty = DOCUMENTS.from_json(Arrays, ARRAYS | {"vector": [], "counts": None})
    assert (empty.vector.dtype, empty.vector.shape, empty.counts) == (np.float32, (0,), None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("vector", value) for value in (0.5, None, "ab", {"a": 1}, [[0.5]], ["0.5"], [None], [True], [0.5, True])),
        *(("vector", [value]) for value in (float("nan"), float("inf"), 1e300, 10**400)),
        *(("table", value) for value in ([1, 2, 3], [[1, 2]], [[1, 2, 3], [1, 2]], [[1, 2, 3], 4], [[[1, 2, 3]]])),
        *(("counts", value) for value in ([3.9], [3.0], ["3"], [[3]], [2**63], [True])),
        *(("pixels", value) for value in ([256], [-1], [0.5])),
        *(("marks", value) for value in ([1], ["true"], [None])),
    ],
)
def test_array_of_another_shape_or_dtype_is_refused(name: str, value: Any):
    with pytest.raises(ValueError, match=rf"^{name}: .* has the wrong type or shape, expected "):
        DOCUMENTS.from_json(Arrays, ARRAYS | {name: value})


@dataclass(frozen=True)
class Color:
    red: int


@dataclass(frozen=True)
class Paint:
    color: Color
    name: str = ""


def read_color(content: Any, _: Any) -> Color:
    if content == "clear":
        raise BadRecipe("clear is no color")
    if not isinstance(content, str):
        raise ValueError(f"{content!r} is no color")
    return Color(int(content, 16))


PAINTS = JsonCodec(custom={Color: CustomType(lambda color, _: f"{color.red:x}", read_color)})


def test_custom_type_is_a_single_value_and_key():
    assert PAINTS.to_json(Paint(Color(255))) == {"color": "ff", "name": ""}
    assert PAINTS.from_json(Paint, {"color": "ff", "name": ""}) == Paint(Color(255))
    assert PAINTS.key_types(Paint) == {"color": Color, "name": str}
    assert DOCUMENTS.key_types(Paint) == {"color.red": int, "name": str}
    with pytest.raises(ValueError, match=r"^color: 3 is no color$"):
        PAINTS.from_json(Paint, {"color": 3, "name": ""})


def test_expected_failure_of_a_custom_type_is_passed_on():
    with pytest.raises(BadRecipe, match=r"^clear is no color$"):
        PAINTS.from_json(Paint, {"color": "clear", "name": ""})


def test_suggestion_is_a_key_of_any_group():
    keys = ["seed", "optimizer.lr", "budget.epochs"]
    assert suggest_key("learning_rate", keys) == suggest_key("lr", keys) == "; did you mean 'optimizer.lr'?"
    assert suggest_key("epoch", keys) == "; did you mean 'budget.epochs'?"
    assert suggest_key("zzzz", keys) == ""


# --- all types that are written -------------------------------------------------------------------------------------

SHARES = st.floats(0.01, 1)
STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(1, 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    str: st.text(max_size=3),
    bool: st.booleans(),
    NoneType: st.none(),
    Any: st.recursive(st.none() | st.booleans() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2)),
    SpeciesMeans: st.fixed_dictionaries(
        {
            "means": st.dictionaries(st.text(max_size=3), st.tuples(SHARES).map(list), min_size=1, max_size=2),
            "calibration": st.deferred(lambda: json_of(Calibration)),
        }
    ),
    Preprocessing: st.fixed_dictionaries(
        {
            "size_px": st.integers(16, 224),
            "resize": st.sampled_from(["stretch", "center_crop"]),
            "resize_px": st.integers(224, 1024),
            "margin": st.floats(0, 2),
            "template": st.sampled_from(["arcface", "box"]),
            "color_order": st.sampled_from(["RGB", "BGR"]),
            "mean": st.lists(SHARES, min_size=3, max_size=3),
            "std": st.lists(SHARES, min_size=3, max_size=3),
        }
    ),
}
SHARED = [
    each
    for module in (gallery_types, recognition_types)
    for each in vars(module).values()
    if field_types(each) and each.__module__ == module.__name__ and not getattr(each, "__parameters__", ())
]
# Faces hold arrays, which == does not compare: `tests/client` reads what the server writes of them.
WITH_FACES = {
    AssignmentConfidence,
    EmbeddedFace,
    GalleryFace,
    GalleryPhoto,
    Hit,
    PhotoVerificationResult,
    SearchResult,
}
WRITTEN = [
    *(each for each in SHARED if each not in WITH_FACES),
    BundleMetadata,
    Calibration,
    DataSpec,
    ExternalIndex,
    ModelReference,
    Page[IdentitySummary],
    Preprocessing,
    Space,
    SpeciesMeans,
]


def json_of(hint: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return a strategy of the JSON of a type; types that contain themselves do so twice at most."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in STRATEGIES:
        return STRATEGIES[hint]
    if origin is Annotated:
        return json_of(inner[0], depth)
    if origin is Literal:
        return st.sampled_from(inner)
    if fields := field_types(hint):
        if inner:  # Page[GalleryFace]: what is generic in it is of the same type
            fields = {
                name: each[inner] if getattr(each, "__parameters__", ()) else each for name, each in fields.items()
            }
        return st.fixed_dictionaries({name: json_of(each, depth + 1) for name, each in fields.items()})
    if origin is tuple and inner[-1] is ...:
        return st.just([]) if depth > 3 else st.lists(json_of(inner[0], depth), max_size=2)
    if origin is tuple:
        return st.tuples(*(json_of(each, depth) for each in inner)).map(list)
    if origin is dict:
        keys = STRATEGIES[inner[0]].map(str)
        return st.dictionaries(keys, json_of(inner[1], depth), max_size=2)
    others = [json_of(each, depth) for each in inner if each is NoneType or depth < 4]
    return st.one_of(others)


@pytest.mark.slow
@pytest.mark.parametrize("written", WRITTEN, ids=str)
@given(st.data())
def test_every_written_type_is_read_as_it_was_written_and_not_with_other_keys(written: Any, data: st.DataObject):
    stored = data.draw(json_of(written))
    value = DOCUMENTS.from_json(written, stored)
    text = json.dumps(DOCUMENTS.to_json(value))
    assert json.loads(text) == stored
    assert DOCUMENTS.from_json(written, json.loads(text)) == value
    fields = field_types(written)
    name = data.draw(st.sampled_from([key for key in stored if is_in_api(fields.get(key))]))
    with pytest.raises(ValueError, match=rf"^the key {name} is missing$"):
        DOCUMENTS.from_json(written, {key: value for key, value in stored.items() if key != name})
    with pytest.raises(ValueError, match=rf"^unknown key '{name}_'; did you mean '{name}'\?$"):
        DOCUMENTS.from_json(written, stored | {f"{name}_": 1})
