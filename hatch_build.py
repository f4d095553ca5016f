"""What an index shows of the package: its addresses, and README.md with links that work there.

All of it is made of one value, the repository's address, in [tool.hatch.metadata.hooks.custom] of pyproject.toml. While
there is none, the package has no addresses, and README.md neither links nor pictures: on an index they lead nowhere.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|#)([^)\s]+)\)")


def readme_for_index(markdown: str, repository: str, tag: str) -> str:
    """Make the links of README.md lead to files of the repository, or be text.

    Args:
        markdown: with links relative to the repository.
        repository: its address on GitHub; "" for none.
        tag: names the version of the files.
    """

    def link(match: re.Match[str]) -> str:
        is_picture, text, path = match.groups()
        if repository:
            return f"{is_picture}[{text}]({repository}/{'raw' if is_picture else 'blob'}/{tag}/{path})"
        return "" if is_picture else text

    return _LINK.sub(link, markdown)


class Addresses(MetadataHookInterface):
    """Sets the fields `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields that pyproject.toml calls dynamic."""
        repository, tag = self.config.get("repository", ""), f"v{metadata['version']}"
        markdown = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = readme_for_index(markdown, repository, tag)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        pages = {
            "Repository": "",
            "Documentation": f"/blob/{tag}/docs/index.md",
            "Changelog": f"/blob/{tag}/CHANGELOG.md",
            "Issues": "/issues",
            "Security": "/security/advisories/new",
        }
        metadata["urls"] = {name: repository + page for name, page in pages.items() if repository}
