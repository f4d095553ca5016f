"""`familiar evaluate`: how good a model is on labeled photos, and which of two is better."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.console import StatusLine, list_skipped, note, print_json
from familiar.cli.options import FILE, data_spec, embedding_options, json_option, limit_options

if TYPE_CHECKING:
    from familiar.evaluation.context import EvaluationOptions
    from familiar.evaluation.evaluate import LeakCheck

SAMPLED = ("balanced", "natural")


@click.command()
@click.argument("model", type=FILE, required=False)
@click.argument("data", nargs=-1, metavar="DATA...")
@click.option("--output", "-o", type=FILE, help="Folder for results, pictures and report.")
@click.option("--suite", "suites", multiple=True, help="One of docs/evaluation.md; all that apply if not given.")
@click.option(
    "--split",
    type=click.Choice(["test", "all"]),
    help="Which identities; test is meant where DATA lies in the run's split.json.",
)
@click.option(
    "--pairs",
    default="all",
    show_default=True,
    metavar="FILE|all|balanced[:N]|natural[:N]",
    help="Judge those of an LFW pairs file, every pair, or N drawn (50,000): half of each kind, or as they come.",
)
@click.option(
    "--leaks",
    type=click.Choice(["check", "exclude", "skip"]),
    default="check",
    show_default=True,
    help="Photos that the model saw, or that stand under two identities: list them, or leave them out too.",
)
@click.option("--slices", type=FILE, help="A CSV with a column `identity` or `photo`: figures for each value.")
@click.option("--by", multiple=True, metavar="COLUMN", help="Only these columns of the CSV.")
@click.option(
    "--resize-px",
    type=int,
    help="Bring a photo's short side to this and cut the crop from its middle, whatever the bundle says.",
)
@click.option(
    "--compare",
    nargs=2,
    type=FILE,
    metavar="A.json B.json",
    help="No MODEL and DATA: which of two results is better?",
)
@embedding_options
@limit_options
@json_option
def evaluate(
    model: Path | None,
    data: tuple[str, ...],
    output: Path | None,
    suites: tuple[str, ...],
    split: str | None,
    pairs: str,
    leaks: "LeakCheck",
    slices: Path | None,
    by: tuple[str, ...],
    resize_px: int | None,
    compare: tuple[Path, Path] | None,
    tta: bool,
    detector: str,
    detector_model: Path | None,
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    as_json: bool,
) -> None:
    """How good a model is on labeled photos.

    Writes eval_results.json, pictures, and report.html, which holds them all.

    \b
    Example:
      familiar evaluate runs/cats photos/cats --output runs/cats/evaluation
      familiar evaluate --compare old/eval_results.json new/eval_results.json
    """
    if compare is not None:
        if model is not None:
            raise click.UsageError("--compare takes two results and no MODEL or DATA")
        _compare(compare, as_json)
        return
    if model is None or not data or output is None:
        raise click.UsageError("MODEL, DATA and --output are needed (or --compare A.json B.json)")
    if by and slices is None:
        raise click.UsageError("--by names columns of the CSV of --slices")
    from familiar.detection.detectors import build_detector
    from familiar.evaluation.evaluate import evaluate as evaluate_model

    status = StatusLine()
    results = evaluate_model(
        model,
        data_spec(data, identities, max_identities, max_photos),
        output,
        _asked(suites, pairs, slices, by),
        split=split,
        leaks=leaks,
        resize_px=resize_px,
        detector=build_detector(detector, detector_model),
        flip=tta,
        on_progress=status.show,
    )
    status.clear()
    if as_json:
        print_json(results)
    else:
        show(results)
        click.echo(f"report: {output / 'report.html'}")


def _asked(suites: tuple[str, ...], pairs: str, slices: Path | None, by: tuple[str, ...]) -> "EvaluationOptions":
    from familiar.evaluation.context import EvaluationOptions

    which, _, count = pairs.partition(":")
    if which == "all" and not count:
        return EvaluationOptions(suites, slices=slices, by=by)
    if which not in SAMPLED or Path(pairs).exists():
        return EvaluationOptions(suites, pairs_file=Path(pairs), slices=slices, by=by)
    if count and not (count.isdecimal() and int(count) > 0):
        raise click.BadParameter(f"{count!r} is no number of pairs", param_hint="--pairs")
    pair_count = int(count) if count else EvaluationOptions.pair_count
    return EvaluationOptions(suites, "natural" if which == "natural" else "balanced", pair_count, slices=slices, by=by)


def _compare(files: tuple[Path, Path], as_json: bool) -> None:
    from familiar.evaluation.comparison import compare, summary
    from familiar.evaluation.results import read_results

    first, second = (read_results(file) for file in files)
    differences = compare(first, second)
    said = summary(differences, (f"A ({files[0]})", f"B ({files[1]})"))
    if as_json:
        rows = [vars(one) | {"better": one.better} for one in differences]
        print_json({"first": files[0], "second": files[1], "differences": rows, "summary": said})
        return
    click.echo(f"{'':42} {'A':>8} {'B':>8} {'B - A':>8}   95 %")
    for one in differences:
        low, high = one.interval
        verdict = {"first": "A is better", "second": "B is better", None: "no more than noise"}[one.better]
        click.echo(
            f"{one.figure:42} {one.first:8.4f} {one.second:8.4f} {one.difference:+8.4f}   "
            f"[{low:+.4f}, {high:+.4f}]  {verdict}"
        )
    click.echo(said)


def show(results: dict[str, Any]) -> None:
    """The headline figures, with their intervals; warnings and skipped photos on stderr."""
    _warn(results)
    data = results["data"]
    click.echo(f"{data['photos']} photos of {data['identities']} identities ({data['split']})")
    if verification := results.get("verification"):
        balanced = verification["at_bundle_thresholds"]["balanced"]["accuracy"]
        interval = verification["interval"]
        _show("ROC AUC", verification["auc"], interval.get("auc"))
        _show("equal error rate", verification["eer"], interval.get("eer"))
        _show("best accuracy", verification["best_accuracy"], interval.get("best_accuracy"))
        _show(
            "accuracy at the bundle's threshold",
            balanced,
            interval.get("at_bundle_thresholds.balanced.accuracy"),
        )
    if retrieval := results.get("retrieval"):
        for k in (1, 5, 10):
            _show(f"recall@{k}", retrieval[f"recall_at_{k}"], retrieval["interval"].get(f"recall_at_{k}"))
    if clustering := results.get("clustering"):
        found, interval = clustering["groups"], clustering["interval"]
        if found["bcubed"]:
            _show(
                f"B-cubed F of {found['groups']} groups",
                found["bcubed"]["f"],
                interval.get("groups.bcubed.f"),
            )
    if lfw := results.get("lfw"):
        if view_2 := lfw["view_2"]:
            click.echo(f"  {'LFW View 2':36} {view_2['accuracy']:.4f} +- {view_2['standard_error']:.4f}")
        if view_1 := lfw["view_1"]:
            _show("LFW View 1, DevTest", view_1["accuracy"], view_1["interval"].get("accuracy"))


def _warn(results: dict[str, Any]) -> None:
    data, leaks = results["data"], results["leaks"]
    list_skipped(data["skipped"])
    if seen := data["identities_seen_in_training"]:
        note(f"warning: {seen} of these identities were trained on; the figures flatter the model")
    if chosen_by := data["identities_seen_in_validation"]:
        note(f"warning: epoch and thresholds were chosen by {chosen_by} of these identities")
    if leaks and (across := len(leaks["across_splits"])):
        note(f"warning: {across} pictures were seen in training too; --leaks exclude leaves them out")
    if leaks and (across := len(leaks["across_identities"])):
        note(f"warning: {across} pictures stand under two identities; the report names them")
    if not results["model"]["thresholds_fitted"]:
        note("warning: nothing is known of this bundle's similarities; its thresholds are fixed ones")
    for name, reason in results["reasons"].items():
        note(f"{name} could not be computed: {reason}")


def _show(name: str, value: float | None, interval: tuple[float, float] | None) -> None:
    if value is None:
        return
    trust = f"95 % in [{interval[0]:.4f}, {interval[1]:.4f}]" if interval else "too few identities for an interval"
    click.echo(f"  {name:36} {value:.4f}   {trust}")
