"""Which bundle embeds faces of which species: one for all, one for each, or a JSON file that says so.

A species file maps species to bundles: `{"cat": "pet-mobile", "dog": "pet-mobile", "person": "people.onnx"}`. A bundle
is the name of a shipped one or of one on the Hub (`hf://ORG/REPO`), or a path relative to the file.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

from familiar.core.errors import BadBundle, FamiliarError
from familiar.core.files import absolute_path, write_atomically
from familiar.core.json_text import parse_json
from familiar.core.types import LABELS
from familiar.detection.detectors import DETECTORS
from familiar.embedding.bundle import Bundle, load_bundle
from familiar.embedding.hub_download import is_hub_name
from familiar.embedding.zoo import shipped_bundles

SUFFIX = ".json"
MAX_FILE_BYTES = 1_000_000

OneModel: TypeAlias = Path | str | Bundle
Models: TypeAlias = OneModel | Sequence[Path | str] | Mapping[str, OneModel]
"""A bundle or a species file; several bundles, each for the species that it is made for, or as `SPECIES=MODEL`; or a
bundle for each species."""

FAMILY: Mapping[str, str] = {"cat": "pet-mobile", "dog": "pet-mobile", "person": "person-mobile"}
"""The shipped bundle of each species that the detectors know: the models of a gallery for which none is named."""


def open_bundles(models: Models) -> dict[str | None, Bundle]:
    """Open the bundle of each species, each file once; one that embeds all species is that of None.

    Args:
        models: what to open.

    Raises:
        BadBundle: a bundle or a species file is missing or damaged.
        FamiliarError: it is not clear which bundle embeds which species.
    """
    if isinstance(models, Path | str) and Path(models).suffix == SUFFIX:
        return dict(open_bundles(read_species_file(Path(models))))
    if isinstance(models, Path | str) and split_species(models)[0]:
        models = assign_species([models])
    if isinstance(models, Path | str | Bundle):
        return {None: models if isinstance(models, Bundle) else load_bundle(models)}
    if not isinstance(models, Mapping):
        if len(models) == 1:
            return open_bundles(models[0])
        models = assign_species(models)
    load = cache(load_bundle)
    return {
        check_species_name(name): model if isinstance(model, Bundle) else load(str(model))
        for name, model in models.items()
    }


def read_species_file(path: Path) -> dict[str, Path | str]:
    """Read the bundle of each species.

    Args:
        path: of the file.

    Raises:
        BadBundle: it is missing or damaged, or its content is something else.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadBundle(f"{path}: is too large for a file of species and bundles")
        stored = parse_json(path.read_bytes())
    except OSError as error:
        raise BadBundle(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BadBundle(f"{path}: is no JSON ({error}); make it again with `familiar species`") from error
    if not isinstance(stored, dict) or not stored or not all(isinstance(each, str) for each in stored.values()):
        raise BadBundle(
            f'{path}: does not name a bundle for each species, as in {{"cat": "pet-mobile"}}; make it again with '
            "`familiar species`"
        )
    if absolute := [each for each in stored.values() if each.startswith(("/", "\\"))]:
        # also that of another computer, which Windows would tell its password
        raise BadBundle(f"{path}: names a bundle by an absolute path, {absolute[0]}; give it relative to the file")
    shipped = shipped_bundles()
    is_name = {each: each in shipped or is_hub_name(each) for each in stored.values()}
    return {name: each if is_name[each] else path.parent / each for name, each in stored.items()}


def write_species_file(path: Path, models: Mapping[str, Path | str]) -> None:
    """Write the bundle of each species: as the name of a shipped one, or by its path relative to the file.

    Args:
        path: of the file.
        models: the bundle of each species.

    Raises:
        CannotWrite: the system refuses.
        ValueError: a bundle is on another drive of Windows.
    """
    folder = absolute_path(path).parent

    def name_of(model: Path | str) -> str:
        is_name = is_hub_name(model) or (str(model) in shipped_bundles() and not Path(model).exists())
        return str(model) if is_name else Path(os.path.relpath(absolute_path(model), folder)).as_posix()

    stored = {check_species_name(name): name_of(model) for name, model in models.items()}
    write_atomically(path, json.dumps(stored, indent=2).encode() + b"\n")


def check_species_name(name: str) -> str:
    """Return a name of letters, digits, `-` and `_`; raise FamiliarError for another one."""
    if not re.fullmatch(r"[\w-]+", name):
        raise FamiliarError(f"species name {name!r}: use only letters, digits, '-' and '_'")
    return name


def assign_species(models: Sequence[Path | str]) -> dict[str, Path | str]:
    """Find the bundle of each species among several.

    `SPECIES=MODEL` names the species itself, several with commas between them. Any other bundle embeds the species
    that it is made for (`species_of`). If a bundle does not say so, it embeds all of cat, dog and person that no other
    bundle does.

    Args:
        models: the bundles.

    Raises:
        FamiliarError: two of them embed the same species, or one is left without any.
    """
    assigned: dict[str, Path | str] = {}
    others: list[Path | str] = []
    for each in models:
        names, model = split_species(each)
        names = names or species_of(load_bundle(model))
        others += [] if names else [model]
        for name in names:
            if name in assigned:
                raise FamiliarError(
                    f"two models are for {name}: {assigned[name]} and {model}; say which is for which species, as in "
                    f"{name}={model}"
                )
            assigned[name] = model
    remaining = [label for label in LABELS if label not in assigned]
    if len(others) > 1 or (others and not remaining):
        raise FamiliarError(f"{others[-1]}: does not say which species it is for; name it, as in cat={others[-1]}")
    return assigned | dict.fromkeys(remaining, others[0]) if others else assigned


def split_species(model: Path | str) -> tuple[tuple[str, ...], Path | str]:
    """Split `SPECIES=MODEL` into its species, none if it names none, and the model.

    >>> split_species("cat,dog=pet-mobile"), split_species("pet-mobile")
    ((('cat', 'dog'), 'pet-mobile'), ((), 'pet-mobile'))
    """
    parts = re.fullmatch(r"([\w-]+(?:,[\w-]+)*)=(.+)", str(model))
    if parts is None or Path(model).exists():
        return (), model
    return tuple(parts[1].split(",")), parts[2]


def absolute_model(model: str) -> str:
    """Return `MODEL` or `SPECIES=MODEL` with the absolute path of what is there."""
    names, named = split_species(model)
    path = str(Path(named).absolute()) if Path(named).exists() else str(named)
    return f"{','.join(names)}={path}" if names else path


def pin_shipped(model: str) -> str:
    """Return a name of `Embedder.names` with the path of a shipped bundle, which no file of that name hides."""
    names, named = split_species(model)
    pinned = str(shipped_bundles().get(str(named), named))
    return f"{','.join(names)}={pinned}" if names else pinned


def species_of(bundle: Bundle) -> tuple[str, ...]:
    """Return the species that a bundle is made for: those of `FAMILY`, of its means or of its detector; none: any.

    Args:
        bundle: a shipped one, or any other.
    """
    shipped = shipped_bundles()
    if names := tuple(species for species, name in FAMILY.items() if shipped.get(name) == bundle.path):
        return names
    means, detector = bundle.metadata.species_means, DETECTORS.get(bundle.metadata.detector)
    if means is not None:
        return tuple(sorted(means.means))
    labels = frozenset() if detector is None else detector.labels
    return () if labels >= set(LABELS) else tuple(sorted(labels))
