"""Compare precisions and networks of decreasing size: accuracy, time and memory."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from familiar.datasets.folders import DataSpec, open_photo
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.evaluation.context import REPLICATES, SEED, EvaluationOptions, SuiteResult, build_context
from familiar.evaluation.results.figures import make_figures
from familiar.evaluation.suites.verification import verification
from familiar.export.gate import DEFAULT_GATE, GateMetrics
from familiar.export.precision import PRECISIONS, Precision
from familiar.metrics.bootstrap import mean_replicates, verification_replicates
from familiar.metrics.retrieval import rank_queries
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import best_accuracy, roc_auc
from papers.bench import Bench, Training, cached, require_success
from papers.figures import Results, number, over_seeds, paired, table
from papers.shared import DEV_TRAIN, GENTLE, PEOPLE, PRETRAINED, at_px, for_epochs
from papers.speed import speeds
from papers.vectors import results_of

TITLE = "Bundle size and accuracy"
CATS, FOLDS = "cats23_gpriamo", 5
MOST_BYTES = 308_000
AUC, ACCURACY, RECALL = "verification.auc", "verification.best_accuracy", "retrieval.recall_at_1"
ANY_LOSS = ("--max-auc-drop", "1", "--max-recall-drop", "1")  # measure even what the accuracy check would refuse
NAMES = {
    "teacher": "`mobilenetv3_small_100`",
    "aware": "the same, quantization-aware",
    "nano": "`nano_mobile`",
}
Step = tuple[str, Precision]
STEPS: tuple[Step, ...] = (
    *(("teacher", precision) for precision in PRECISIONS),
    ("aware", "int8"),
    *(("nano", precision) for precision in PRECISIONS),
)

NANO = ("model.name=nano_mobile", "model.dropout=0")
# Quantization-aware fine-tuning of a finished run, for a few epochs.
AWARE = (
    "quantize.aware=true",
    "model.dropout=0",
    "optimizer.lr=3e-4",
    "optimizer.backbone_lr=1e-4",
    "optimizer.warmup_epochs=0",
)
COMPILED = ("--compile", "--max-photos", "20")
PEOPLE_SETTINGS = (
    *PRETRAINED,
    *GENTLE,
    *at_px(112),
    "model.dropout=0.2",
    "loss.label_smoothing=0",
    "loss.margin_rad=0 to 0.3 over 0.334",
    "optimizer.lr=1e-3",
    "optimizer.backbone_lr=2e-4",
    "optimizer.warmup_epochs=1",
    "split.min_photos=2",
    "split.validation=0.04",
    "split.test=0",
    "validation.best_by=auc",
)
# A cat has only sixteen photos: the pet embedder's whole augmentation, and a smaller margin.
PETS_SETTINGS = (
    *PRETRAINED,
    *at_px(112),
    "model.dropout=0.2",
    "loss.label_smoothing=0",
    "loss.scale=24",
    "loss.margin_rad=0 to 0.2 over 0.334",
    "optimizer.lr=1e-3",
    "optimizer.backbone_lr=2e-4",
    "optimizer.warmup_epochs=1",
    "split.min_photos=2",
)


def people(bench: Bench, kind: str) -> Training:
    """Define a training on DevTrain's people; "nano" is also distilled from "teacher"."""
    settings, options = (*PEOPLE_SETTINGS, *for_epochs(40, 4)), (*DEV_TRAIN, *COMPILED)
    teacher = Training("ladder/people-teacher", "pet-mobile", PEOPLE, settings, options)
    run = bench.run(teacher)
    match kind:
        case "nano":
            distilled = (*settings, *NANO, f"distill.teacher={run.bundle}")
            return replace(teacher, name="ladder/people-nano", settings=distilled)
        case "aware":
            finetuned = (*AWARE, *for_epochs(3), "loss.margin_rad=0.3", f"model.initial_weights={run.path}")
            uncompiled = (*DEV_TRAIN, *COMPILED[1:])
            return replace(teacher, name="ladder/people-aware", settings=(*settings, *finetuned), options=uncompiled)
        case _:
            return teacher


def pets(bench: Bench, kind: str, fold: int) -> Training:
    """Define a training on the other folds' cats, validated on its own fold once, at the end.

    So the fold's cats choose no epoch.
    """
    held_out = ",".join(cats_of(bench.photos / CATS, fold))
    settings = (*PETS_SETTINGS, *for_epochs(40), f"split.validate={held_out}")
    teacher = Training(f"ladder/pets-teacher-{fold}", "pet-mobile", (CATS,), settings)
    run = bench.run(teacher)
    match kind:
        case "nano":
            distilled = (*settings, *NANO, *for_epochs(60), f"distill.teacher={run.bundle}")
            return replace(teacher, name=f"ladder/pets-nano-{fold}", settings=distilled)
        case "aware":
            finetuned = (*AWARE, *for_epochs(20), "loss.margin_rad=0.2", f"model.initial_weights={run.path}")
            return replace(teacher, name=f"ladder/pets-aware-{fold}", settings=(*settings, *finetuned))
        case _:
            return teacher


def cats_of(photos: Path, fold: int) -> list[str]:
    """List the cats of a fold: every fifth by name."""
    return sorted(folder.name for folder in photos.iterdir() if folder.is_dir())[fold::FOLDS]


def measure(bench: Bench) -> str:
    for kind in NAMES:  # teachers are trained first
        bench.train([people(bench, kind), *(pets(bench, kind, fold) for fold in range(FOLDS))])
    return "\n\n".join(
        [
            "Size and speed: crops of zeros at 112 px in ONNX Runtime, bundles measured alternately, medians; in "
            "brackets the ratio to the first row. Bold: at most 308,000 bytes. Memory is the increase in a process's "
            "memory from before the bundle is loaded to after its first photo. `int8-weights` computes in float32, "
            "`mixed` and `int8` in 8 bits.",
            size_table(bench),
            "Accuracy: for people on LFW's `pairsDevTest`; for pets by five-fold cross-validation, in which each "
            "fold's networks are trained on the other folds' cats, and the similarities of all pairs within the folds "
            "are pooled. Accuracies are balanced, at the threshold that is best on the same pairs. Differences from "
            "the first row are bold if the interval excludes zero.",
            accuracy_table(bench),
        ]
    )


def size_table(bench: Bench) -> str:
    models = {step: exported(bench, people(bench, step[0]), step[1]) for step in STEPS}
    speed_by_step = speeds({step_name(step): model for step, model in models.items()})
    first = speed_by_step[step_name(STEPS[0])]
    rows: list[list[str]] = []
    for step, model in models.items():
        content, speed = model.read_bytes(), speed_by_step[step_name(step)]
        rows.append(
            [
                step_name(step) if len(content) > MOST_BYTES else f"**{step_name(step)}**",
                f"{len(content):,}",
                f"{len(zlib.compress(content, 9)):,}",
                f"{speed.load_ms:.0f}",
                f"{speed.one_thread_ms:.2f} ({speed.one_thread_ms / first.one_thread_ms:.2f})",
                f"{speed.two_threads_ms:.2f}",
                f"{speed.photos_per_second:.0f} ({speed.photos_per_second / first.photos_per_second:.2f})",
                f"{speed.memory_mb:.0f}",
                accuracy_check(model),
            ]
        )
    head = [
        "",
        "bytes",
        "compressed (zlib)",
        "load, ms",
        "one photo, one thread, ms",
        "two threads",
        "photos/s, 32 at once",
    ]
    return table([*head, "memory, MB", "export's accuracy check (people)"], rows)


def accuracy_table(bench: Bench) -> str:
    results = {step: (on_people(bench, *step), on_pets(bench, *step)) for step in STEPS}
    rows = [
        [step_name(step), *_cells(people_results, results[STEPS[0]][0]), *_cells(cats_results, results[STEPS[0]][1])]
        for step, (people_results, cats_results) in results.items()
    ]
    head = ["ROC AUC", "accuracy", "accuracy, difference"]
    return table(["", *(f"people: {name}" for name in head), *(f"cats: {name}" for name in head), "recall@1"], rows)


def step_name(step: Step) -> str:
    return f"{NAMES[step[0]]}, {step[1]}"


def exported(bench: Bench, training: Training, precision: Precision) -> Path:
    run = bench.run(training)
    output = run.path / f"{precision}.onnx"
    if not output.exists():
        command = ("export", str(run.path), "--precision", precision, *ANY_LOSS, "--output", str(output))
        require_success(bench.familiar(*command))
    return output


def accuracy_check(model: Path) -> str:
    metadata = load_bundle(model).metadata
    before = GateMetrics(**metadata.parity["source"])
    after = GateMetrics(**{name: metadata.results[name] for name in GateMetrics.__dataclass_fields__})
    verdict = "passes" if DEFAULT_GATE.passes(before, after) else "fails"
    return f"{verdict} (cosine {number(metadata.parity['mean_cosine'])})"


def on_people(bench: Bench, kind: str, precision: Precision) -> Results:
    """Evaluate on the 1,000 pairs of LFW's View 1."""
    training = people(bench, kind)

    def work() -> Results:
        photos = DataSpec((str(bench.photos / PEOPLE[0]),)).read()
        options = EvaluationOptions(pairs_file=bench.photos / PEOPLE[0] / "pairsDevTest.txt")
        context = build_context(Embedder(exported(bench, training, precision)), photos, options)
        return results_of({"verification": verification(context)})

    return cached(bench.run(training).path / f"devtest-{precision}.json", work)


def on_pets(bench: Bench, kind: str, precision: Precision) -> Results:
    """Evaluate every fold's cats with the network that was not trained on them."""

    def work() -> Results:
        table = DataSpec((str(bench.photos / CATS),)).read()
        folds: list[FoldScores] = []
        for fold in range(FOLDS):
            model = exported(bench, pets(bench, kind, fold), precision)
            fold_photos = table.select_identities(f"{CATS}/{cat}" for cat in cats_of(bench.photos / CATS, fold))
            embedded_photos = embed_photos(Embedder(model), fold_photos.photos, "none", open_photo=open_photo)
            names = np.array(table.names)
            labels = np.searchsorted(names, np.array(fold_photos.names)[fold_photos.labels])
            folds.append(score_fold(embedded_photos.embeddings, labels))
        return results_of(pooled(folds))

    return cached(bench.run(pets(bench, kind, 0)).path / f"folds-{precision}.json", work)


@dataclass(frozen=True, eq=False)
class FoldScores:
    """Scores of one fold.

    The similarity of each pair with its two cats; for each photo its cat, and whether the nearest other photo shows it.
    """

    scores: Float[np.ndarray, " p"]
    left: Int[np.ndarray, " p"]
    right: Int[np.ndarray, " p"]
    hits: Float[np.ndarray, " q"]
    identity: Int[np.ndarray, " q"]


def score_fold(embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> FoldScores:
    left, right = np.triu_indices(len(labels), 1)
    ranking = rank_queries(embeddings, labels)
    scores = np.einsum("ij,ij->i", embeddings[left], embeddings[right])
    return FoldScores(scores, labels[left], labels[right], ranking.figures((1,))["recall_at_1"], ranking.identity)


def pooled(folds: Sequence[FoldScores]) -> dict[str, SuiteResult]:
    """Compute the metrics of all folds together, with bootstrap replicates over all their identities."""
    scores, left, right, hits, identity = (
        np.concatenate([getattr(fold, name) for fold in folds]) for name in FoldScores.__dataclass_fields__
    )
    counts = roc_counts(scores[left == right], scores[left != right])
    drawn_replicates = verification_replicates(scores, left, right, replicates=REPLICATES, seed=SEED)
    ranked = mean_replicates({"recall_at_1": hits}, identity, replicates=REPLICATES, seed=SEED)
    figures = {"auc": roc_auc(counts), "best_accuracy": best_accuracy(counts, balanced=True)[0]}
    replicates = {"auc": drawn_replicates["auc"], "best_accuracy": drawn_replicates["best_balanced_accuracy"]}
    return {
        "verification": SuiteResult(make_figures(figures, replicates), replicates),
        "retrieval": SuiteResult(make_figures({"recall_at_1": float(hits.mean())}, ranked), ranked),
    }


def _cells(results: Results, first: Results) -> list[str]:
    figures = [over_seeds([results], path) for path in (AUC, ACCURACY)]
    recall = [over_seeds([results], RECALL)] if "retrieval" in results else []
    return [*figures, "" if results is first else paired([first], [results], ACCURACY), *recall]
