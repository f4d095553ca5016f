"""`familiar evaluate`: measure a model on labeled photos, and compare two results."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from familiar.cli.console import StatusLine, list_skipped, note, print_json
from familiar.cli.options import FILE, data_spec, embedding_options, json_option, limit_options, species_option

if TYPE_CHECKING:
    from familiar.evaluation.context import EvaluationOptions
    from familiar.evaluation.results import EvaluationResults
    from familiar.evaluation.results.document import RoutingInfo
    from familiar.evaluation.run_evaluation import LeakCheck

SAMPLED = ("balanced", "natural")
HEADLINES = (  # that are printed, by path
    "verification.auc",
    "verification.eer",
    "verification.best_accuracy",
    "verification.at_bundle_thresholds.balanced.accuracy",
    "retrieval.recall_at_1",
    "retrieval.recall_at_5",
    "retrieval.recall_at_10",
    "pixels.recall_at_1",
    "pixels.auc",
    "pixels.recall_at_1_gain",
)
SPECIES_HEADLINES = (
    "verification.auc",
    "verification.eer",
    "verification.at_bundle_thresholds.balanced.accuracy",
    "retrieval.recall_at_1",
)


@click.command()
@click.argument("model", type=FILE, required=False)
@click.argument("data", nargs=-1, metavar="DATA...")
@click.option("--output", "-o", type=FILE, help="Folder for the results, plots and report.")
@click.option(
    "--suite",
    "suites",
    multiple=True,
    help="What to measure: retrieval, clustering, verification, triplets, overfitting, robustness, tta, background, "
    "pixels, separation, identification, harmonic, slices or lfw; may be repeated (default: all that apply).",
)
@click.option(
    "--split",
    type=click.Choice(["test", "all"]),
    help="Identities to evaluate (default: test where DATA matches the run's split.json, else all).",
)
@click.option(
    "--split-of",
    type=FILE,
    metavar="RUN",
    help="Evaluate on the test identities of this run, to compare MODEL with it on the same photos.",
)
@click.option(
    "--pairs",
    default="all",
    show_default=True,
    metavar="FILE|all|balanced[:N]|natural[:N]",
    help="Pairs for verification: those of an LFW pairs file, all, or N sampled (default 50,000), balanced or in the "
    "data's ratio of same to different.",
)
@click.option(
    "--leaks",
    type=click.Choice(["check", "exclude", "skip"]),
    default="check",
    show_default=True,
    help="Photos that the model was trained on, or that are labeled as two identities: list them, exclude them too, or "
    "skip the check.",
)
@click.option(
    "--slices",
    type=FILE,
    help="A CSV with a column `identity` or `photo`: metrics for each value of its other columns.",
)
@click.option("--by", multiple=True, metavar="COLUMN", help="Only this column of the CSV; may be repeated.")
@click.option(
    "--resize-px",
    type=int,
    help="Override the preprocessing of a single bundle: resize the short side to this, and crop the center.",
)
@click.option(
    "--compare",
    nargs=2,
    type=FILE,
    metavar="A.json B.json",
    help="Compare two eval_results.json files instead of evaluating MODEL on DATA.",
)
@click.option(
    "--not-centered",
    is_flag=True,
    help="Compare embeddings as they are, also those of a bundle with species means, which by default are compared as "
    "in a gallery: less the means of the photos.",
)
@species_option
@embedding_options
@limit_options
@json_option
def evaluate(
    model: Path | None,
    data: tuple[str, ...],
    output: Path | None,
    suites: tuple[str, ...],
    split: Literal["test", "all"] | None,
    split_of: Path | None,
    pairs: str,
    leaks: "LeakCheck",
    slices: Path | None,
    by: tuple[str, ...],
    resize_px: int | None,
    compare: tuple[Path, Path] | None,
    not_centered: bool,
    species: str | None,
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    exclude: tuple[str, ...],
    as_json: bool,
) -> None:
    """Evaluate a model on labeled photos.

    Writes eval_results.json, plots, and report.html, which contains them all. MODEL is a bundle, a run folder, or a
    .json file of familiar species, of which each species is also measured with its own bundle and thresholds.

    \b
    Example:
      familiar evaluate runs/cats photos/cats --output runs/cats/evaluation
      familiar evaluate family.json photos/pets --output family-evaluation
      familiar evaluate --compare old/eval_results.json new/eval_results.json
    """
    if compare is not None:
        if model is not None:
            raise click.UsageError("--compare takes two result files and no MODEL or DATA")
        _compare(compare, as_json)
        return
    if model is None or not data or output is None:
        raise click.UsageError("MODEL, DATA and --output are needed (or --compare A.json B.json)")
    if by and slices is None:
        raise click.UsageError("--by names columns of the CSV of --slices")
    from familiar.detection.detectors import build_detector
    from familiar.evaluation.run_evaluation import evaluate as evaluate_model

    status = StatusLine()
    results = evaluate_model(
        model,
        data_spec(data, identities, max_identities, max_photos, exclude),
        output,
        _options(suites, pairs, slices, by),
        split=split,
        split_of=split_of,
        leaks=leaks,
        resize_px=resize_px,
        detector=build_detector(detector, detector_model) if detector else None,
        species=species,
        flip=tta,
        not_centered=not_centered,
        providers=providers,
        on_progress=status.show,
    )
    status.clear()
    if as_json:
        print_json(results.to_json(with_replicates=False))
    else:
        print_metrics(results)
        click.echo(f"report: {output / 'report.html'}")


def _options(suites: tuple[str, ...], pairs: str, slices: Path | None, by: tuple[str, ...]) -> "EvaluationOptions":
    from familiar.evaluation.context import EvaluationOptions

    sampling, _, count = pairs.partition(":")
    if sampling == "all" and not count:
        return EvaluationOptions(suites, slices=slices, by=by)
    if sampling not in SAMPLED or Path(pairs).exists():
        return EvaluationOptions(suites, pairs_file=Path(pairs), slices=slices, by=by)
    if count and not (count.isdecimal() and int(count) > 0):
        raise click.BadParameter(f"{count!r} is not a number of pairs", param_hint="--pairs")
    pair_count = int(count) if count else EvaluationOptions.pair_count
    return EvaluationOptions(
        suites, "natural" if sampling == "natural" else "balanced", pair_count, slices=slices, by=by
    )


def _compare(files: tuple[Path, Path], as_json: bool) -> None:
    from familiar.evaluation.comparison import compare, summarize
    from familiar.evaluation.results import read_results

    first, second = (read_results(file) for file in files)
    differences = compare(first, second)
    conclusion = summarize(differences, (f"A ({files[0]})", f"B ({files[1]})"))
    if as_json:
        rows = [vars(difference) | {"better": difference.better} for difference in differences]
        print_json({"first": files[0], "second": files[1], "differences": rows, "summary": conclusion})
        return
    width = max(len(difference.figure) for difference in differences)
    click.echo(f"{'':{width}} {'A':>8} {'B':>8} {'B - A':>8}   95 %")
    for difference in differences:
        verdict = "no interval"
        if difference.interval is not None:
            low, high = difference.interval
            better = {"first": "A is better", "second": "B is better", None: "within noise"}[difference.better]
            verdict = f"[{low:+.4f}, {high:+.4f}]  {better}"
        values = f"{difference.first:8.4f} {difference.second:8.4f} {difference.difference:+8.4f}"
        click.echo(f"{difference.figure:{width}} {values}   {verdict}")
    click.echo(conclusion)


def print_metrics(results: "EvaluationResults") -> None:
    """Print the main metrics with their confidence intervals; warnings and skipped photos go to stderr."""
    from familiar.evaluation.results.figures import names_between

    _warn(results)
    data = results.data
    comparison = f"compared {results.model.comparison}"
    click.echo(f"{data.photos} photos of {data.identities} identities ({data.split}), {comparison}")
    for path in HEADLINES:
        _print_figure(results, path)
    _print_figure(results, "clustering.groups.bcubed.f", f" of {results.value('clustering.groups.groups')} clusters")
    if "background" in results.suites:
        with_face, without = results.value("background.photos"), results.value("background.photos_without_face")
        click.echo(f"in {with_face} photos a face was found, in {without} others none:")
        for part, name in (("whole", "whole"), ("face", "face alone"), ("background", "background alone")):
            for figure in ("recall_at_1", "auc"):
                _print_figure(results, f"background.{part}.{figure}", f", {name}")
    if "robustness" in results.suites:
        photos, identities = results.value("robustness.photos"), results.value("robustness.identities")
        click.echo(f"{photos} corrupted photos of {identities} identities, searched for among the clean ones:")
        for corruption in names_between(results.figures, "robustness.corruptions", "severity"):
            _print_figure(results, f"robustness.corruptions.{corruption}.recall_at_1_drop", f", {corruption}")
    if (accuracy := results.value("lfw.view_2.accuracy")) is not None:
        click.echo(f"  {'LFW View 2':36} {accuracy:.4f} +- {results.value('lfw.view_2.standard_error'):.4f}")
    _print_figure(results, "lfw.view_1.accuracy")
    if data.routing is not None:
        _print_species(results, data.routing)


def _print_species(results: "EvaluationResults", routing: "RoutingInfo") -> None:
    """Print how many photos of each species there are, and the figures of each by its own bundle."""
    from familiar.evaluation.results.figures import names_between
    from familiar.evaluation.suites.slices import ROUTED_SPECIES

    sent = ", ".join(f"{photos} to {species}" for species, photos in routing.photos.items())
    click.echo(f"photos sent {sent}; skipped for lack of a bundle: {routing.without_bundle}")
    column = f"slices.columns.{ROUTED_SPECIES}"
    for index in names_between(results.figures, column, "value"):
        path = f"{column}.{index}"
        species, photos, identities = (results.value(f"{path}.{key}") for key in ("value", "photos", "identities"))
        click.echo(f"{species}, by its own bundle: {photos} photos of {identities} identities")
        for figure in SPECIES_HEADLINES:
            _print_figure(results, f"{path}.{figure}")
        for missing, reason in results.missing.items():
            if missing.rpartition(".")[0] == path:  # a suite
                note(f"{species}: {reason}")


def _warn(results: "EvaluationResults") -> None:
    from familiar.evaluation.suites.pixels import pixels_warning

    data, leaks = results.data, results.leaks
    list_skipped(data.skipped)
    if data.identities_seen_in_training:
        note(
            f"warning: {data.identities_seen_in_training} of these identities were trained on; the metrics are too "
            "optimistic"
        )
    if data.identities_seen_in_validation:
        note(
            "warning: the epoch and the thresholds were chosen on "
            f"{data.identities_seen_in_validation} of these identities"
        )
    if data.collections_trained_on and not data.identities_seen_in_training:
        collections = ", ".join(data.collections_trained_on)
        note(f"warning: the model was trained on photos of {collections}; the metrics are lower on other collections")
    if leaks and (across := len(leaks.across_splits)):
        note(f"warning: {across} photos were in the training data too; --leaks exclude leaves them out")
    if leaks and (across := len(leaks.across_identities)):
        note(f"warning: {across} photos are labeled as two identities; the report lists them")
    if data.identities_seen_in_training is None:
        note("note: whether the model was trained on photos of these identities is not known")
    if not results.model.thresholds_fitted and data.routing is not None:
        note("note: the thresholds of the bundles differ; for all photos together they are fixed defaults")
    elif not results.model.thresholds_fitted:
        note("warning: this bundle was never calibrated; its thresholds are fixed defaults")
    if warning := pixels_warning(results):
        note(f"warning: {warning}")
    for name, reason in results.reasons.items():
        note(f"{name} could not be computed: {reason}")


def _print_figure(results: "EvaluationResults", path: str, suffix: str = "") -> None:
    """Print a figure that has a value, with its interval; `suffix` is added to its name."""
    from familiar.evaluation.results.labels import find_label

    figure = results.figures.get(path)
    if figure is None or figure.value is None:
        return
    label, interval = find_label(path), figure.interval
    confidence = f"95 % in [{interval[0]:.4f}, {interval[1]:.4f}]" if interval else "too few identities for an interval"
    click.echo(f"  {(label.printed or label.name) + suffix:36} {figure.value:.4f}   {confidence}")
