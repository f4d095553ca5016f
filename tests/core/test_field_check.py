"""Types of fields: every value of another type is noticed, and none that is right."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.field_check import check_fields


@dataclass(frozen=True)
class Inner:
    share: float | None = None


@dataclass(frozen=True)
class Outer:
    count: int = 3
    name: str = "Mia"
    is_fitted: bool = True
    side: Literal["left", "right"] = "left"
    mean: tuple[float, float] = (0.5, 1)
    lengths: tuple[int, ...] = (1, 2, 3)
    inner: Inner = Inner(0.5)
    other: Inner | None = None
    by_name: dict[str, Inner] = field(default_factory=dict[str, Inner])
    anything: dict[str, Any] = field(default_factory=dict[str, Any])


def test_right_types_are_accepted():
    check_fields(Outer())
    check_fields(Outer(lengths=(), other=Inner(1), by_name={"a": Inner()}, anything={"a": [None]}))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("count", value, "count is .*, not int") for value in (True, 3.0, "3", None, {}, [])),
        *(("name", value, "name is .*, not str") for value in (3, None, b"Mia", ["Mia"])),
        *(("is_fitted", value, "not bool") for value in (1, None, "true")),
        *(("side", value, "side is") for value in ("up", None, 3, [])),
        *(("mean", value, "mean is") for value in ([0.5, 1.0], None, "ab", 0.5)),
        ("mean", (0.5,), "mean has 1 entries, not 2"),
        ("mean", (0.5, True), "mean is True, not float"),
        ("lengths", (1, "2"), "lengths is '2', not int"),
        *(("inner", value, "inner is") for value in (None, {}, {"share": 0.5})),
        ("inner", Inner("x"), "share is 'x', not float"),  # type: ignore[arg-type]
        ("other", 3, "other is 3"),
        ("by_name", {1: Inner()}, "by_name is 1, not str"),
        ("by_name", {"a": None}, r"by_name\.a is None"),
        ("anything", {1: 2}, "anything is 1, not str"),
        ("anything", None, "anything is None"),
    ],
)
def test_other_types_are_named(name: str, value: Any, message: str):
    with pytest.raises(TypeError, match=message):
        check_fields(replace(Outer(), **{name: value}))


@given(st.floats() | st.integers())
def test_an_integer_is_a_float(value: float):
    check_fields(Inner(value))
