"""What docs/explanation/privacy.md lists: the files of a gallery, and its tables."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "privacy.md"


def listed(heading: str) -> list[str]:
    """Return the names in the first column of the table under a heading, which are in backticks."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return [name for cell in rows for name in re.findall("`([^`]+)`", cell)]


def unlisted_files(folder: Path, heading: str) -> list[str]:
    """Return the files of a folder that no name or pattern under a heading stands for."""
    paths = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    patterns = listed(heading)
    return [path for path in paths if not any(fnmatchcase(path, pattern) for pattern in patterns)]
