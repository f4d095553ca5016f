"""`familiar species`: train a species classifier that routes photos to per-species bundles."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.console import StatusLine, list_skipped, note, print_json
from familiar.cli.options import FILE, embedding_options, json_option, model_option, require_parent_folder

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.embedding.species.classifier import SpeciesClassifier


@click.command()
@click.argument("data", nargs=-1, required=True, metavar="SPECIES=DATA...")
@model_option
@click.option(
    "--bundle",
    "bundles",
    multiple=True,
    metavar="SPECIES=MODEL",
    help="Bundle for photos of a species; may be repeated. Photos of a species without a bundle are skipped.",
)
@click.option("--output", "-o", required=True, type=FILE, help="The router to write, a .json file.")
@click.option(
    "--min-probability",
    type=click.FloatRange(0, 1),
    default=0.9,
    show_default=True,
    help="Skip a photo if its species is less certain than this.",
)
@click.option("--max-identities", type=click.IntRange(min=2), help="Maximum number of identities per species.")
@click.option("--max-photos", type=click.IntRange(min=1), help="Maximum number of photos per identity.")
@embedding_options
@json_option
def species(
    data: tuple[str, ...],
    model: Path,
    bundles: tuple[str, ...],
    output: Path,
    min_probability: float,
    max_identities: int | None,
    max_photos: int | None,
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Train a router: a classifier that picks a bundle by species.

    This command trains a small species classifier on the embeddings of
    --model (any bundle), and writes it to a file together with
    the paths of the bundles. `embed` and `verify` take that file as their --model.

    \b
    Example:
      familiar species cat=photos/cats dog=photos/dogs --model cats.onnx --bundle cat=cats.onnx \\
        --bundle dog=dogs.onnx --output router.json
    """
    from familiar.datasets.folders import DataSpec
    from familiar.embedding.bundle import resolve_model
    from familiar.embedding.embedder import Embedder
    from familiar.embedding.species.router import RoutedEmbedder
    from familiar.embedding.species.router_file import SUFFIX, write_router
    from familiar.training.species import fit_on_photos

    require_parent_folder(output)
    if output.suffix != SUFFIX:
        raise click.BadParameter(f"the name of a router file ends in {SUFFIX}: {output.name}", param_hint="--output")
    sources = _sources(data)
    bundle_of = _bundle_of(bundles, sources)
    opened: dict[Path, Embedder] = {}

    def embedder(text: Path | str) -> Embedder:
        path = resolve_model(text).resolve()
        if path not in opened:
            opened[path] = Embedder(path, providers=providers)
        return opened[path]

    features = embedder(model)
    embedders = {name: embedder(text) for name, text in bundle_of.items()}
    tables = {
        name: DataSpec(roots, max_identities=max_identities, max_photos=max_photos).read()
        for name, roots in sources.items()
    }
    photos = sum(map(len, tables.values()))
    status = StatusLine()
    classifier, skipped = fit_on_photos(
        features,
        tables,
        features.detector(detector, detector_model),
        flip=tta,
        min_probability=min_probability,
        on_batch=lambda done: status.show(f"embedded {done:,}/{photos:,} photos"),
    )
    status.clear()
    list_skipped(skipped)
    write_router(output, RoutedEmbedder(features, classifier, embedders))
    if as_json:
        print_json(_summary(classifier) | {"output": output, "skipped": [str(error) for error in skipped]})
        return
    for name in classifier.names:
        if name not in embedders:
            note(f"{name}: has no --bundle, so its photos will be skipped")
    for line in _lines(classifier):
        click.echo(line)
    click.echo(f"router: {output}")


def _sources(data: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Collect the data of each species, which may be given several times."""
    from familiar.embedding.species.classifier import check_species_names

    sources: dict[str, tuple[str, ...]] = {}
    for text in data:
        name, source = _assignment(text, "DATA")
        sources[name] = (*sources.get(name, ()), source)
    try:
        check_species_names(tuple(sources))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="DATA") from error
    return sources


def _bundle_of(bundles: Iterable[str], sources: Iterable[str]) -> dict[str, str]:
    bundle_by_species: dict[str, str] = {}
    for text in bundles:
        name, bundle = _assignment(text, "--bundle")
        if name in bundle_by_species or name not in sources:
            wrong = "has two bundles" if name in bundle_by_species else f"is not one of {', '.join(sources)}"
            raise click.BadParameter(f"{name} {wrong}", param_hint="--bundle")
        bundle_by_species[name] = bundle
    return bundle_by_species


def _assignment(text: str, hint: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise click.BadParameter(f"{text!r} is not SPECIES=PATH", param_hint=hint)
    return name, value


def _summary(classifier: "SpeciesClassifier") -> dict[str, Any]:
    held_out = classifier.held_out
    return {
        "fitted_on": classifier.training_counts,
        "space_id": classifier.space_id,
        "temperature": classifier.temperature,
        "min_probability": classifier.min_probability,
        "held_out": {
            "accuracy": held_out.accuracy,
            "misrouted": held_out.misrouted_rate,
            "unsure": held_out.unsure_rate,
            "confusion": {
                name: dict(zip((*classifier.names, "unsure"), row, strict=True))
                for name, row in zip(classifier.names, held_out.confusion, strict=True)
            },
        },
    }


def _lines(classifier: "SpeciesClassifier") -> Iterable[str]:
    held_out = classifier.held_out
    for name, counts in classifier.training_counts.items():
        yield f"{name}: {counts['photos']:,} photos of {counts['identities']:,} identities"
    yield ""
    yield "on held-out identities, all species weighted equally:"
    yield f"  most probable species right           {held_out.accuracy:8.2%}"
    yield f"  sent to a wrong bundle              {held_out.misrouted_rate:8.2%}"
    yield f"  unsure (none reaches {classifier.min_probability:g})".ljust(38) + f"{held_out.unsure_rate:8.2%}"
    yield ""
    columns = (*classifier.names, "unsure")
    width = max(map(len, (*columns, "photos of"))) + 2
    yield "photos of".ljust(width) + "".join(f"-> {name}".rjust(width + 3) for name in columns)
    for name, row in zip(classifier.names, held_out.confusion, strict=True):
        yield name.ljust(width) + "".join(f"{count:,}".rjust(width + 3) for count in row)
    yield ""
