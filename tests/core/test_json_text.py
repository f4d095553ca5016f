"""JSON of strangers: whatever is wrong with it is a ValueError."""

import json

import pytest

from familiar.core.json_text import MAX_DEPTH, parse_json


def test_parses_what_json_does():
    document = {"a": [1, 2.5, None, True, {"b": ["é", []]}]}
    for text in (json.dumps(document), json.dumps(document).encode(), json.dumps(document).encode("utf-16")):
        assert parse_json(text) == document


def test_depth_is_limited_exactly():
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_json('{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH)
    for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(opening * (MAX_DEPTH + 1) + "1" + closing * (MAX_DEPTH + 1))


@pytest.mark.parametrize("text", ["", "[", "{", "nul", "[" * 100_000, '{"a":' * 100_000, "9" * 5_000, b"\xff\xfe\xfd"])
def test_what_is_no_json_is_a_value_error(text: str | bytes):
    with pytest.raises(ValueError, match=r"Expect|nested|digits|decode|property"):
        parse_json(text)
