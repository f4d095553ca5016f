"""Add to an SBOM the libraries inside wheels, as the wheels' SBOMs list them (PEP 770): a step of `make dist`."""

import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from support.licenses import normalize

_KEYS = ("type", "name", "version", "description", "scope", "licenses", "purl")


def libraries(package: Distribution) -> list[dict[str, Any]]:
    """Return the components that a wheel's SBOMs list, without the package itself and what it was only built with."""
    itself = f"pkg:pypi/{normalize(package.metadata['Name'])}@"
    components = [
        component
        for file in package.files or ()
        if file.parent.name == "sboms" and file.parent.parent.suffix == ".dist-info"
        for component in json.loads(Path(str(package.locate_file(file))).read_text(encoding="utf-8")).get(
            "components", ()
        )
        if not component.get("purl", "").replace("_", "-").startswith(itself) and component.get("scope") != "excluded"
    ]
    # Without references, which the SBOMs of two wheels may have in common.
    unique = {json.dumps(each): each for each in ({key: c[key] for key in _KEYS if key in c} for c in components)}
    return [unique[text] for text in sorted(unique)]


def add_libraries(sbom: dict[str, Any], packages: list[Distribution]) -> None:
    """Add to each package of a CycloneDX document the libraries in its wheel, as its components."""
    by_name = {normalize(package.metadata["Name"]): package for package in packages}
    for component in sbom["components"]:
        package = by_name.get(normalize(component["name"]))
        if package is not None and (listed := libraries(package)):
            component["components"] = listed


def main(sbom: Path, environment: Path) -> None:
    """Rewrite the SBOM of the packages that are installed in an environment."""
    document = json.loads(sbom.read_text(encoding="utf-8"))
    add_libraries(document, list(distributions(path=[str(path) for path in environment.glob("lib/*/site-packages")])))
    sbom.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
