"""Marks of file formats: a text such as `familiar-bundle/1` under the key `format`, with a name and a version."""

import re


def explain_other_format(mark: object, expected: str, remedy: str) -> str:
    """Say why a file without the expected mark is not read, and what to do.

    Args:
        mark: the file's mark; None: it has none, like the files of development versions.
        expected: the mark of the files that are read.
        remedy: how to get such a file.

    >>> explain_other_format("familiar-bundle/2", "familiar-bundle/1", "export it again")
    'was made by a newer version of familiar (familiar-bundle/2); update familiar'
    >>> explain_other_format(None, "familiar-bundle/1", "export it again")
    'was made by a development version of familiar; export it again'
    """
    if mark is None:
        return f"was made by a development version of familiar; {remedy}"
    name, _, version = expected.partition("/")
    newer = re.fullmatch(rf"{name}/([1-9][0-9]{{0,8}})", mark) if isinstance(mark, str) else None
    if newer is not None and int(newer[1]) > int(version):
        return f"was made by a newer version of familiar ({mark}); update familiar"
    return f"is of format {mark!r:.60}, not {expected}; {remedy}"
