"""Traces of a secret in files: its bytes in every form in which a program may have written it."""

import base64
import html
import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import numpy as np

_JSON_NUMBERS = 4  # of a vector: so many in a row are no coincidence


def forms_of_text(text: str) -> set[bytes]:
    """Return a text as programs write it: encoded, escaped, as hexadecimal digits, in base64."""
    written = {text, json.dumps(text)[1:-1], html.escape(text), quote(text), quote(text, safe="")}
    forms = {form.encode() for form in written} | {text.encode("utf-16-le")}
    return forms | forms_of_bytes(text.encode())


def forms_of_bytes(content: bytes) -> set[bytes]:
    """Return bytes as they are, as hexadecimal digits, and in base64 at every position in a longer text."""
    encoded = {base64.b64encode(bytes(shift) + content)[shift and 4 : -4] for shift in range(3)}
    return {content, content.hex().encode(), content.hex().upper().encode(), *encoded}


def forms_of_vector(vector: np.ndarray) -> set[bytes]:
    """Return a vector as float16, float32 and float64, and its first numbers in JSON."""
    forms: set[bytes] = set()
    for dtype in ("<f2", "<f4", "<f8"):
        values = vector.astype(dtype)
        forms |= forms_of_bytes(values.tobytes())
        forms.add(", ".join(map(repr, values[:_JSON_NUMBERS].tolist())).encode())
    return forms


def files_with(folders: Iterable[Path], secrets: dict[str, set[bytes]]) -> set[tuple[str, str]]:
    """Return (the secret's name, the file's path) of each file, or file's name, that has a form of a secret."""
    traces: set[tuple[str, str]] = set()
    for folder in folders:
        for path in folder.rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            searched = str(path.relative_to(folder)).encode() + b"\n" + content
            for name, forms in secrets.items():
                if any(form in searched for form in forms):
                    traces.add((name, str(path.relative_to(folder.parent))))
    return traces
