"""`familiar evaluate`: how good a model is on labelled photos."""

from pathlib import Path
from typing import Any

import click

from familiar.app.console import StatusLine, list_skipped, note, print_json
from familiar.app.options import FILE, data_argument, data_spec, embedding_options, json_option, limit_options


@click.command()
@click.argument("model", type=FILE)
@data_argument
@click.option("--output", "-o", required=True, type=FILE, help="Folder for results, pictures and report.")
@click.option("--suite", "suites", multiple=True, help="retrieval or verification; both if not given.")
@click.option(
    "--split",
    type=click.Choice(["test", "all"]),
    help="Which identities; test is meant where DATA lies in the run's split.json.",
)
@click.option("--pairs", type=FILE, help="Judge the pairs of this LFW pairs file.")
@embedding_options
@limit_options
@json_option
def evaluate(
    model: Path,
    data: tuple[str, ...],
    output: Path,
    suites: tuple[str, ...],
    split: str | None,
    pairs: Path | None,
    tta: bool,
    detector: str,
    detector_model: Path | None,
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    as_json: bool,
) -> None:
    """How good a model is on labelled photos.

    Writes eval_results.json, pictures, and report.html, which holds them all.

    \b
    Example:
      familiar evaluate runs/cats photos/cats --output runs/cats/evaluation
    """
    from familiar.evaluation.evaluate import evaluate as evaluate_model
    from familiar.evaluation.suites import SUITES
    from familiar.faces.detect import build_detector

    status = StatusLine()
    results = evaluate_model(
        model,
        data_spec(data, identities, max_identities, max_photos),
        output,
        suites=suites or tuple(SUITES),
        split=split,
        pairs_file=pairs,
        detector=build_detector(detector, detector_model),
        flip=tta,
        on_batch=lambda done: status.show(f"embedded {done} photos"),
    )
    status.clear()
    if as_json:
        print_json(results)
    else:
        show(results)
        click.echo(f"report: {output / 'report.html'}")


def show(results: dict[str, Any]) -> None:
    """The headline figures, with their intervals; warnings and skipped photos on stderr."""
    data = results["data"]
    list_skipped(data["skipped"])
    if data["identities_seen_in_training"]:
        seen = data["identities_seen_in_training"]
        note(f"warning: {seen} of these identities were trained on; the figures flatter the model")
    for name, reason in results["reasons"].items():
        note(f"{name} could not be computed: {reason}")
    click.echo(f"{data['photos']} photos of {data['identities']} identities ({data['split']})")
    if verification := results.get("verification"):
        balanced = verification["at_bundle_thresholds"]["balanced"]["accuracy"]
        _show("ROC AUC", verification["auc"], verification["interval"].get("auc"))
        _show("equal error rate", verification["eer"], verification["interval"].get("eer"))
        _show("best accuracy", verification["best_accuracy"], verification["interval"].get("best_accuracy"))
        _show(
            "accuracy at the bundle's threshold",
            balanced,
            verification["interval"].get("accuracy_at_balanced"),
        )
    if retrieval := results.get("retrieval"):
        for k in (1, 5, 10):
            _show(f"recall@{k}", retrieval[f"recall_at_{k}"], retrieval["interval"].get(f"recall_at_{k}"))


def _show(name: str, value: float, interval: tuple[float, float] | None) -> None:
    trust = (
        f"95 % in [{interval[0]:.4f}, {interval[1]:.4f}]"
        if interval
        else "too few identities for an interval"
    )
    click.echo(f"  {name:36} {value:.4f}   {trust}")
