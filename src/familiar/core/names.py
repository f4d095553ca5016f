"""Names of individuals, in the one spelling in which they are stored and compared.

One name can be typed in several ways that nobody can tell apart: an accent as a character of its own (as macOS stores
the names of folders), a wide or a no-break space, or with a mark of the writing direction that was copied along.
"""

import re
import unicodedata

from familiar.core.terminal_text import printable

_SPACES = re.compile(" {2,}")
_JOINERS = "\u200c\u200d\u180e"  # zero-width non-joiner and joiner, Mongolian vowel separator
# Letters of these scripts change or join by what stands between them: Arabic to Sinhala, Tibetan and Burmese, those of
# the Philippines to Vedic signs, Phags-pa to Meetei, the forms of Arabic, and the scripts of that kind beyond U+FFFF.
_JOINING = re.compile(
    "[\u0600-\u0dff\u0f00-\u109f\u1700-\u1cff\ua840-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    "\U00010840-\U00011fff\U0001e900-\U0001e95f]"
)
_VIRAMA = 9  # canonical combining class of the signs after which a joiner shapes the letter, at the end of a word too
# The flag of England and the like: a black flag, and a country in letters that are not shown.
_FLAG_OF_REGION = re.compile("\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f")
_VISIBLE_FORMATS = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f]")
# Invisible, though Unicode has them as marks and letters: variation selectors (which say whether a character is drawn
# as an emoji, or which form of a Chinese character), the grapheme joiner, and the fillers of Korean and of Khmer.
_INVISIBLE = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5]")
_CONTROL_NAMES = {
    "\0": "null",
    "\a": "bell",
    "\b": "backspace",
    "\t": "tab",
    "\n": "line break",
    "\r": "carriage return",
    "\x1b": "escape",
    "\x7f": "delete",
    "\x85": "next line",
}


def unify_spelling(text: str) -> str:
    """Return a text in the one spelling of all that look the same.

    It is composed (Unicode's NFC). Every separator becomes a space, and several become one; none is left at the ends.
    Marks that are not seen are left out, except joiners where they change what is seen: between letters of Persian and
    the like, after the signs of Indian scripts that silence a vowel, and between emoji.

    >>> ascii(unify_spelling("Jose\\u0301\\u3000 Ruiz\\u200e "))
    "'Jos\\\\xe9 Ruiz'"
    """
    while (unified := _unify_once(text)) != text:  # marks that stood apart may combine, which nearly none does
        text = unified
    return text


def normalize_name(text: str) -> str:
    """Return a name in the spelling in which it is stored and compared.

    Raises:
        ValueError: nothing is left of it, or it has a control character, or half a character.
    """
    name = unify_spelling(text)
    fault = next(filter(None, map(_fault, name)), None if name else "it has no visible character")
    if fault is not None:
        raise ValueError(f"'{printable(text)}' is not a valid name: {fault}")
    return name


def confusable_key(name: str) -> str:
    """Return what is equal for names that are easily taken for each other.

    They differ only in case, in joiners, or in forms such as full-width letters.

    >>> confusable_key("Mia") == confusable_key("ＭＩＡ")
    True
    """
    if name.isascii():
        return name.lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return unify_spelling("".join(letter for letter in folded if letter not in _JOINERS))


def _unify_once(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        if not text.isprintable() or _INVISIBLE.search(text):
            text = _drop_invisible_marks(text)
            text = "".join(" " if unicodedata.category(letter)[0] == "Z" else letter for letter in text)
            text = unicodedata.normalize("NFC", text)
    return _SPACES.sub(" ", text.strip())


def _drop_invisible_marks(text: str) -> str:
    flags = {index for match in _FLAG_OF_REGION.finditer(text) for index in range(*match.span())}
    letters = [letter for index, letter in enumerate(text) if index in flags or not _is_dropped(letter)]
    result: list[str] = []
    for index, letter in enumerate(letters):
        if letter in _JOINERS:
            following = next((other for other in letters[index:] if other not in _JOINERS), "")
            if not _shapes(letter, result[-1] if result else "", following):
                continue
        result.append(letter)
    return "".join(result)


def _is_dropped(letter: str) -> bool:
    """Whether a character is an invisible mark, but no joiner."""
    if letter in _JOINERS or _VISIBLE_FORMATS.match(letter):
        return False
    return unicodedata.category(letter) == "Cf" or _INVISIBLE.match(letter) is not None


def _shapes(joiner: str, previous: str, following: str) -> bool:
    """Whether a joiner between two characters, of which either may be missing, changes what is seen."""
    if previous and unicodedata.combining(previous) == _VIRAMA:
        return True
    if not previous or not following:
        return False
    if _is_joining_letter(previous) and _is_joining_letter(following):
        return True
    return joiner == "\u200d" and _may_be_emoji(previous) and _may_be_emoji(following)


def _is_joining_letter(letter: str) -> bool:
    return _JOINING.match(letter) is not None and unicodedata.category(letter)[0] in "LM"


def _may_be_emoji(letter: str) -> bool:
    """Whether a character is a symbol beyond those of letters; emoji of newer versions of Unicode are unknown here."""
    return letter > "\u2100" and unicodedata.category(letter) in ("So", "Sm", "Sk", "Cn")


def _fault(letter: str) -> str | None:
    """Say why a character cannot be in a name; None if it can."""
    code, category = ord(letter), unicodedata.category(letter)
    if category == "Cc":
        description = _CONTROL_NAMES.get(letter)
        return f"it has the control character U+{code:04X}{f' ({description})' if description else ''}"
    if 0xDC80 <= code <= 0xDCFF:  # Python's stand-in for a byte
        return f"its byte {code - 0xDC00:02X} is not UTF-8"
    if category == "Cs":
        return f"it has half a character, U+{code:04X}"
    if code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
        return f"U+{code:04X} is no character"  # and XML cannot hold U+FFFE
    return None
