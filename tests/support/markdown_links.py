"""Dead links in Markdown files: to a missing file, or to a heading that the page does not have."""

import re
from pathlib import Path

FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\n)*\]\(([^)\s]+)\)")
ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)  # mkdocstrings makes an anchor of each


def dead_links(page: Path, root: Path) -> list[str]:
    """Return the links of a page that lead nowhere, or out of `root`."""
    return [target for target in _targets(page) if not re.match(r"[a-z]+:", target) and _is_dead(page, target, root)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: those that a repository's site and our own both give a heading, and API entries.

    Of two headings with one text only the first has the same anchor on both.
    """
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*?)\s*$", FENCE.sub("", text), re.MULTILINE)
    entries = ENTRY.findall(text)
    return {ours for heading in headings if (ours := _on_our_site(heading)) == _in_repository(heading)} | {*entries}


def _targets(page: Path) -> list[str]:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    return LINK.findall(re.sub(r"`[^`\n]*`", "code", prose))


def _is_dead(page: Path, target: str, root: Path) -> bool:
    path, _, anchor = target.partition("#")
    linked = (page.parent / path).resolve() if path else page
    if not linked.is_relative_to(root.resolve()) or not linked.exists():
        return True
    return bool(anchor) and (linked.suffix != ".md" or anchor not in anchors(linked))


def _on_our_site(heading: str) -> str:
    """Return the anchor by Python-Markdown's rule."""
    text = re.sub(r"[^\w\s-]", "", _plain(heading)).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def _in_repository(heading: str) -> str:
    """Return the anchor by GitHub's rule, which others follow."""
    return re.sub(r"[^\w\- ]", "", _plain(heading).strip().lower()).replace(" ", "-")


def _plain(heading: str) -> str:
    return LINK.sub("", heading).replace("`", "")
