"""English plurals for counts in messages and pages."""


def pluralize(count: int, noun: str) -> str:
    """Write a count and its noun.

    >>> pluralize(1, "face"), pluralize(2000, "identity"), pluralize(0, "photo")
    ('1 face', '2,000 identities', '0 photos')
    """
    plural = noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun if count == 1 else plural}"
