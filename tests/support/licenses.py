"""The licenses of what is installed, from its metadata: a table of docs/reference/licenses.md."""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "licenses.md"
LOCK = ROOT / "requirements-locked.txt"

PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "LLVM-exception",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Zlib",
}
EXPLAINED = {"MPL-2.0", "LicenseRef-NVIDIA-Proprietary"}  # not permissive: the page says why they may be used
# As packages write it that have no SPDX expression. "BSD": they do not say which.
_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "ISC license": "ISC",
    "MIT Licence": "MIT",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "NVIDIA Proprietary Software": "LicenseRef-NVIDIA-Proprietary",
    "any-OSI": "Zlib",  # that of its choice, of those that the OSI has approved
    "PSFL": "PSF-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# Read in the license file of packages whose metadata name none.
_FROM_FILES = {"atheris": "Apache-2.0", "axe-playwright-python": "MIT", "cuda-toolkit": "LicenseRef-NVIDIA-Proprietary"}
_MAX_CHARACTERS = 80  # more is the license's text


def normalize(name: str) -> str:
    """Return a package's name as PyPI compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_versions(lock: str) -> dict[str, str]:
    """Return the version of each package of a requirements file with hashes."""
    return {normalize(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE)}


def license_of(package: Distribution) -> str:
    """Return a package's license, as an SPDX expression where its metadata allow; "" if they name none."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    text = (metadata.get("License") or "").strip()
    if 0 < len(text) <= _MAX_CHARACTERS and "\n" not in text and text != "UNKNOWN":
        return _SPDX.get(text, text)
    classifiers = [each for each in metadata.get_all("Classifier") or () if each.startswith("License ::")]
    names = {_SPDX.get(name, name) for name in (each.rpartition(":: ")[2] for each in classifiers)}
    return " OR ".join(sorted(names)) or _FROM_FILES.get(normalize(metadata["Name"]), "")


def is_accepted(expression: str) -> bool:
    """Tell whether a license is permissive or explained: each part of an AND, one of an OR.

    >>> is_accepted("MPL-2.0 AND (GPL-3.0-only OR MIT)"), is_accepted("MIT AND GPL-3.0-only"), is_accepted("")
    (True, False, False)
    """
    return all(
        any(license in PERMISSIVE or license in EXPLAINED for license in part.strip("() ").split(" OR "))
        for part in re.split(" AND | WITH ", expression)
    )


def installed(folders: Iterable[str]) -> dict[str, Distribution]:
    """Return the packages installed in folders such as `site-packages`, by normalized name."""
    return {normalize(each.metadata["Name"]): each for each in distributions(path=list(folders))}


def requirements(packages: dict[str, Distribution], name: str, extra: str) -> set[str]:
    """Return the names of all installed packages that an extra of a package requires."""
    seen: set[tuple[str, str]] = set()

    def visit(name: str, extra: str) -> Iterator[str]:
        if (name, extra) in seen or name not in packages:
            return
        seen.add((name, extra))
        yield name
        for requirement in map(Requirement, packages[name].requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                for each in ("", *requirement.extras):
                    yield from visit(normalize(requirement.name), each)

    return set(visit(name, "")) | set(visit(name, extra)) - {name}


def license_rows() -> list[str]:
    """Return a row for each locked package that is installed here."""
    packages, locked = installed(sys.path), locked_versions(LOCK.read_text())
    used = set[str]().union(*(requirements(packages, "familiar-faces", each) for each in ("all", "milvus", "ray")))
    lines = ["| package | license | for |", "|---|---|---|"]
    for name in sorted(packages.keys() & locked.keys()):
        purpose = "use" if name in used else "development"
        lines.append(f"| {name} | {license_of(packages[name])} | {purpose} |")
    return lines
