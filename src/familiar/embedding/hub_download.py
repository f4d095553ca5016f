"""Bundles on the Hugging Face Hub, by name: `hf://ORG/REPO`, or `hf://ORG/REPO@REVISION`."""

import logging
import re
from pathlib import Path

from familiar.core import run_files
from familiar.core.errors import BadBundle, FamiliarError
from familiar.core.terminal_text import one_line

log = logging.getLogger(__name__)

NEEDS_HUB = "this needs huggingface_hub: pip install 'familiar-faces[hub]'"
_NAME = re.compile(r"hf:/{1,2}([\w.-]+/[\w.-]+)(?:@([^@\s]+))?")  # a `Path` has one slash
_CACHED = re.compile(
    r"models--([\w.-]+?)--([\w.-]+)[/\\]snapshots[/\\]([0-9a-f]{40})[/\\]" + re.escape(run_files.BUNDLE)
)
_COMMIT = re.compile("[0-9a-f]{40}")


def is_hub_name(model: Path | str) -> bool:
    """Tell whether a model is named as one of the Hub."""
    return str(model).startswith("hf:/")


def fetch_bundle(model: Path | str) -> Path:
    """Find the bundle of a repository in Hugging Face's cache, and download it if it is not there or has changed.

    A commit that is in the cache is not asked for again. Where the Hub cannot be reached, the cached bundle is used,
    and a warning says so.

    Args:
        model: `hf://ORG/REPO`, or with `@` and a branch, a tag or a commit.

    Returns:
        The file in the cache.

    Raises:
        BadBundle: the name is written wrongly, there is no such repository, revision or bundle, or the Hub cannot be
            reached and the cache has none.
        FamiliarError: huggingface_hub is not installed.
    """
    match = _NAME.fullmatch(str(model))
    if match is None:
        raise BadBundle(f"{model}: write a model of the Hub as hf://ORG/REPO or hf://ORG/REPO@REVISION")
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ModuleNotFoundError as error:
        raise FamiliarError(f"{model}: {NEEDS_HUB}") from error
    repository, revision = match.groups()
    name = f"hf://{repository}" + (f"@{revision}" if revision else "")
    cached = hub.try_to_load_from_cache(repository, run_files.BUNDLE, revision=revision)
    if isinstance(cached, str) and _COMMIT.fullmatch(revision or ""):
        return Path(cached)
    try:
        hub.HfApi().model_info(repository, revision=revision, timeout=10)  # a download would not say that it is offline
        return Path(hub.hf_hub_download(repository, run_files.BUNDLE, revision=revision))
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise BadBundle(
            f"{name}: the Hub has no such repository or revision, or it is private; check the name, or log in with "
            "hf auth login"
        ) from error
    except errors.RemoteEntryNotFoundError as error:
        raise BadBundle(
            f"{name}: the repository has no {run_files.BUNDLE}, so it is none of familiar's bundles"
        ) from error
    except Exception as error:  # offline, or whatever a network does
        if not isinstance(cached, str):
            raise BadBundle(
                f"{name}: the Hub cannot be reached, and the bundle is not in the cache ({one_line(str(error))})"
            ) from error
        log.warning(
            "%s: the Hub cannot be reached; the bundle in the cache is used (%s)", name, Path(cached).parent.name
        )
        return Path(cached)


def hub_name(path: Path) -> str | None:
    """Return the name, with its commit, of a bundle in Hugging Face's cache; None: it is another file."""
    match = _CACHED.search(str(path))
    return match and f"hf://{match[1]}/{match[2]}@{match[3]}"
