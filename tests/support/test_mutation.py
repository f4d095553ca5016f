"""Mutations change one piece of code, and only code that runs."""

from pathlib import Path

import pytest

from support.mutation import SOURCE, draw, mutations_of

pytestmark = pytest.mark.slow


def changed(source: str) -> set[str]:
    """The source after each possible mutation."""
    encoded = source.encode()
    return {
        (encoded[: each.start] + each.replacement.encode() + encoded[each.end :]).decode()
        for each in mutations_of(SOURCE / "core" / "x.py", source)
    }


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {"(a <= b)"}),
        ("a is not b", {"(a is b)"}),
        ("a + b", {"(a - b)"}),
        ("a += b", {"a -= b"}),
        ("a and b", {"(a or b)"}),
        ("not a", {"(a)"}),
        ("-a", {"(a)"}),
        ("True", {"(False)"}),
        ("a = 4", {"a = (5)"}),
        ("a if b else c", {"(a if not b else c)"}),
        ("f(a)", {"pass"}),
        ("def f():\n    return a", {"def f():\n    return None"}),
        ("é = 'é' < a", {"é = ('é' <= a)"}),
        ("a < b == c", {"(a <= b == c)"}),
    ],
)
def test_mutates_each_kind_of_expression(source: str, expected: set[str]):
    assert changed(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "x: Array['3'] | None",
        "def f(x: 3 = a) -> 4: ...",
        "@cache(3)\nclass A: ...",
        "__all__ = [3]",
        "if TYPE_CHECKING:\n    x = 3",
        "f'{a + 1}'",
        "'''Text.'''",
        "def f():\n    return None",
    ],
)
def test_leaves_annotations_decorators_and_texts_unchanged(source: str):
    assert changed(source) == set()


@pytest.mark.exhaustive
def test_draw_is_deterministic_and_mutates_existing_source():
    drawn = draw(20, seed=1)
    assert drawn == draw(20, seed=1) != draw(20, seed=2)
    for mutation in drawn:
        content = (Path(__file__).parents[2] / mutation.path).read_bytes()
        assert content[mutation.start : mutation.end].decode() == mutation.original != mutation.replacement
        assert (Path(__file__).parents[2] / SOURCE / mutation.package).exists()
