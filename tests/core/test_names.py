"""Names that look the same are one name."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.names import confusable_key, normalize_name, unify_spelling

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
PERSIAN = "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627"  # Ali Reza, with the non-joiner between its parts
MALAYALAM = "\u0d30\u0d3e\u0d1c\u0d28\u0d4d\u200d"  # Rajan, whose last letter a joiner shapes
NAMES = st.text(
    st.one_of(
        st.sampled_from(
            "eia \u0301\u0323\u00a0\u3000\u2028\u200b\u200c\u200d\u200e\ufe0f\u180e\u0627\u094d\u0915\u093c"
        ),
        st.sampled_from("\U0001f468\u2764\U0001f3f4\U000e0067\U000e007f\t\x1c#\uac00\u1100\u1161"),
        st.characters(),
    )
)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Jose\u0301", "Jos\u00e9"),
        ("\u1112\u1161\u11ab", "\ud55c"),
        ("\u30cf\u309a\u30d4", "\u30d1\u30d4"),
        ("\u5c71\u7530\u3000\u592a\u90ce", "\u5c71\u7530 \u592a\u90ce"),
        ("\u00abMia\u00a0\u00bb", "\u00abMia \u00bb"),
        ("Mia\u2028Maus", "Mia Maus"),
        (" Mia \u2003\u202f  Maus\u3000\n", "Mia Maus"),
        ("\u200eMia\u200f\u202a\u2069", "Mia"),
        ("\ufeffMi\u00ada\u2060\u200b\u061c", "Mia"),
        ("Mi\u200da\u200c", "Mia"),
        ("\u200d\u0639\u0644\u06cc\u200c", "\u0639\u0644\u06cc"),
        ("\u0639\u0644\u06cc\u200c\u200c\u200b\u0631\u0636\u0627", PERSIAN),
        ("\u2764\ufe0f", "\u2764"),
        ("e\u034f\u0301", "\u00e9"),
        ("\u845b\U000e0100", "\u845b"),
    ],
)
def test_spellings_that_look_the_same_are_one_name(typed: str, name: str):
    assert normalize_name(typed) == normalize_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        PERSIAN,
        MALAYALAM,
        FAMILY,
        ENGLAND,
        "\U0001f1eb\U0001f1f7",
        "\u2764\u200d\U0001f525",
        "\ue000",
        "Mia",
        "O'Hara-2",
    ],
)
def test_marks_that_change_what_is_seen_stay(name: str):
    assert normalize_name(f" {name}\u200e") == name


@pytest.mark.parametrize(
    ("typed", "cause"),
    [
        ("Mia\a", r"'Mia\\x07' is not a valid name: it has the control character U\+0007 \(bell\)"),
        ("Mia\tMaus", r"U\+0009 \(tab\)"),
        ("two\nlines", r"U\+000A \(line break\)"),
        ("a\x80b", r"control character U\+0080"),
        ("Jos\udce9", "its byte E9 is not UTF-8"),
        ("\ud83d", r"half a character, U\+D83D"),
        ("a\ufffeb", r"U\+FFFE is no character"),
        ("", "no visible character"),
        ("\u3000\u200b\u3164\u200d", "no visible character"),
    ],
)
def test_refused_names_are_explained(typed: str, cause: str):
    with pytest.raises(ValueError, match=cause):
        normalize_name(typed)


@given(NAMES)
def test_every_text_has_one_spelling(text: str):
    unified = unify_spelling(text)
    assert unify_spelling(unified) == unified == unicodedata.normalize("NFC", unified)
    assert (
        unified
        == unify_spelling(unicodedata.normalize("NFC", text))
        == unify_spelling(unicodedata.normalize("NFD", text))
    )
    assert not any(unicodedata.category(letter)[0] == "Z" for letter in unified.replace(" ", ""))


@given(NAMES)
def test_an_accepted_name_has_no_control_character_and_can_be_written(text: str):
    try:
        name = normalize_name(text)
    except ValueError:
        return
    assert normalize_name(name) == name == name.strip()
    assert not {unicodedata.category(letter) for letter in name} & {"Cc", "Cs"}
    name.encode()


def test_names_that_are_easily_confused_have_one_key():
    spellings = ("Mia Maus", "mia maus", "\uff2d\uff49\uff41 Maus", "MIA MAUS")
    assert len({confusable_key(name) for name in spellings}) == 1
    assert confusable_key("Mia") != confusable_key("Lia")
