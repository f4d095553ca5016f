"""English plurals for counts in messages and pages."""

_IRREGULAR = {"person": "people"}


def plural(noun: str) -> str:
    """Return the plural of a noun.

    >>> plural("cat"), plural("identity"), plural("person")
    ('cats', 'identities', 'people')
    """
    return _IRREGULAR.get(noun) or (noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s")


def pluralize(count: int, noun: str) -> str:
    """Write a count and its noun.

    >>> pluralize(1, "face"), pluralize(2000, "identity"), pluralize(0, "photo")
    ('1 face', '2,000 identities', '0 photos')
    """
    return f"{count:,} {noun if count == 1 else plural(noun)}"
