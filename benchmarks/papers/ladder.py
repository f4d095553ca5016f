"""The same embedder in fewer and fewer bytes: what each step costs in accuracy, time and memory."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from familiar.datasets.folders import DataSpec, open_photo
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.evaluation.context import REPLICATES, SEED, EvaluationOptions, Outcome
from familiar.evaluation.context import build_context as embedded
from familiar.evaluation.suites.verification import verification
from familiar.export.gate import STANDARD, Figures
from familiar.export.precision import PRECISIONS, Precision
from familiar.metrics.bootstrap import mean_replicates, verification_replicates
from familiar.metrics.retrieval import rank_queries
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import best_accuracy, roc_auc
from papers import best
from papers.bench import Bench, Training, kept, require_success
from papers.figures import Results, number, over_seeds, paired, table
from papers.shared import DEV_TRAIN, PEOPLE, PRETRAINED, at_px, for_epochs
from papers.speed import speeds
from papers.vectors import results_of

TITLE = "The size ladder"
CATS, FOLDS = "cats23_gpriamo", 5
MOST_BYTES = 308_000
AUC, ACCURACY, RECALL = "verification.auc", "verification.best_accuracy", "retrieval.recall_at_1"
ANY_LOSS = ("--max-auc-drop", "1", "--max-recall-drop", "1")  # what the gate would refuse is measured too
NAMES = {
    "teacher": "`mobilenetv3_small_100`",
    "aware": "the same, trained on in 8 bits",
    "nano": "`nano_mobile`",
}
Step = tuple[str, Precision]
STEPS: tuple[Step, ...] = (
    *(("teacher", precision) for precision in PRECISIONS),
    ("aware", "int8"),
    *(("nano", precision) for precision in PRECISIONS),
)

NANO = ("model.name=nano_mobile", "model.dropout=0")
# A run gone on with for a little while, rounding as it will be rounded.
AWARE = (
    "quantize.aware=true",
    "model.dropout=0",
    "optimizer.lr=3e-4",
    "optimizer.backbone_lr=1e-4",
    "optimizer.warmup_epochs=0",
)
PEOPLE_SETTINGS = (*best.SETTINGS, *at_px(112), "split.test=0")
# A cat has sixteen photos: all of the pet embedder's augmentation, and a milder margin.
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
    """DevTrain's people; the small network learns from the large one besides the labels."""
    settings, options = (*PEOPLE_SETTINGS, *for_epochs(40, 4)), (*DEV_TRAIN, *best.COMPILED)
    teacher = Training("ladder/people-teacher", "pet-mobile", PEOPLE, settings, options)
    run = bench.run(teacher)
    match kind:
        case "nano":
            taught = (*settings, *NANO, f"distill.teacher={run.bundle}")
            return replace(teacher, name="ladder/people-nano", settings=taught)
        case "aware":
            on = (*AWARE, *for_epochs(3), "loss.margin_rad=0.3", f"model.initial_weights={run.path}")
            uncompiled = (*DEV_TRAIN, *best.COMPILED[1:])
            return replace(teacher, name="ladder/people-aware", settings=(*settings, *on), options=uncompiled)
        case _:
            return teacher


def pets(bench: Bench, kind: str, fold: int) -> Training:
    """The other folds' cats; validated once, at the end, on the fold's own, so that these choose no epoch."""
    held_out = ",".join(cats_of(bench.photos / CATS, fold))
    settings = (*PETS_SETTINGS, *for_epochs(40), f"split.validate={held_out}")
    teacher = Training(f"ladder/pets-teacher-{fold}", "pet-mobile", (CATS,), settings)
    run = bench.run(teacher)
    match kind:
        case "nano":
            taught = (*settings, *NANO, *for_epochs(60), f"distill.teacher={run.bundle}")
            return replace(teacher, name=f"ladder/pets-nano-{fold}", settings=taught)
        case "aware":
            on = (*AWARE, *for_epochs(20), "loss.margin_rad=0.2", f"model.initial_weights={run.path}")
            return replace(teacher, name=f"ladder/pets-aware-{fold}", settings=(*settings, *on))
        case _:
            return teacher


def cats_of(photos: Path, fold: int) -> list[str]:
    """Every fifth cat, by name."""
    return sorted(folder.name for folder in photos.iterdir() if folder.is_dir())[fold::FOLDS]


def measure(bench: Bench) -> str:
    for kind in NAMES:  # teachers first
        bench.train([people(bench, kind), *(pets(bench, kind, fold) for fold in range(FOLDS))])
    return "\n\n".join(
        [
            "Zeros at 112 px in ONNX Runtime, all in turns, medians; in brackets as a share of the first row's. Bold: "
            "at most 308,000 bytes. Memory is what a process holds more after its first photo. `int8-weights` computes "
            "in float32, `mixed` and `int8` in 8 bits.",
            size_table(bench),
            "Accuracy: people on LFW's `pairsDevTest`; pets in five folds of cats by identity, pairs within a fold, "
            "their similarities pooled, each fold's networks trained on the other folds' cats. Accuracies weigh both "
            "kinds of pairs alike, at the threshold that is best on the very pairs. What differs to the first row is "
            "bold where the interval leaves out zero.",
            accuracy_table(bench),
        ]
    )


def size_table(bench: Bench) -> str:
    models = {step: exported(bench, people(bench, step[0]), step[1]) for step in STEPS}
    found = speeds({said(step): model for step, model in models.items()})
    first = found[said(STEPS[0])]
    rows: list[list[str]] = []
    for step, model in models.items():
        content, speed = model.read_bytes(), found[said(step)]
        rows.append(
            [
                said(step) if len(content) > MOST_BYTES else f"**{said(step)}**",
                f"{len(content):,}",
                f"{len(zlib.compress(content, 9)):,}",
                f"{speed.load_ms:.0f}",
                f"{speed.one_thread_ms:.2f} ({speed.one_thread_ms / first.one_thread_ms:.2f})",
                f"{speed.two_threads_ms:.2f}",
                f"{speed.photos_per_second:.0f} ({speed.photos_per_second / first.photos_per_second:.2f})",
                f"{speed.memory_mb:.0f}",
                judged_by_gate(model),
            ]
        )
    head = [
        "",
        "bytes",
        "zipped",
        "opens, ms",
        "one photo, one thread, ms",
        "two threads",
        "photos/s, 32 at once",
    ]
    return table([*head, "memory, MB", "the gate, on its people"], rows)


def accuracy_table(bench: Bench) -> str:
    on = {step: (on_people(bench, *step), on_pets(bench, *step)) for step in STEPS}
    rows = [
        [said(step), *_cells(people_found, on[STEPS[0]][0]), *_cells(cats_found, on[STEPS[0]][1])]
        for step, (people_found, cats_found) in on.items()
    ]
    head = ["ROC AUC", "accuracy", "accuracy, difference"]
    return table(["", *(f"people: {name}" for name in head), *(f"cats: {name}" for name in head), "recall@1"], rows)


def said(step: Step) -> str:
    return f"{NAMES[step[0]]}, {step[1]}"


def exported(bench: Bench, training: Training, precision: Precision) -> Path:
    run = bench.run(training)
    output = run.path / f"{precision}.onnx"
    if not output.exists():
        asked = ("export", str(run.path), "--precision", precision, *ANY_LOSS, "--output", str(output))
        require_success(bench.familiar(*asked))
    return output


def judged_by_gate(model: Path) -> str:
    metadata = load_bundle(model).metadata
    before = Figures(**metadata.parity["source"])
    after = Figures(**{name: metadata.results[name] for name in Figures.__dataclass_fields__})
    verdict = "passes" if STANDARD.passes(before, after) else "refuses it"
    return f"{verdict} (cosine {number(metadata.parity['mean_cosine'])})"


def on_people(bench: Bench, kind: str, precision: Precision) -> Results:
    """The 1,000 pairs of LFW's View 1."""
    training = people(bench, kind)

    def work() -> Results:
        photos = DataSpec((str(bench.photos / PEOPLE[0]),)).read()
        asked = EvaluationOptions(pairs_file=bench.photos / PEOPLE[0] / "pairsDevTest.txt")
        found = embedded(Embedder(exported(bench, training, precision)), photos, asked)
        return results_of({"verification": verification(found)})

    return kept(bench.run(training).path / f"devtest-{precision}.json", work)


def on_pets(bench: Bench, kind: str, precision: Precision) -> Results:
    """Every fold's cats, by the network that did not see them."""

    def work() -> Results:
        table = DataSpec((str(bench.photos / CATS),)).read()
        folds: list[Held] = []
        for fold in range(FOLDS):
            model = exported(bench, pets(bench, kind, fold), precision)
            held_out = table.of_identities(f"{CATS}/{cat}" for cat in cats_of(bench.photos / CATS, fold))
            found = embed_photos(Embedder(model), held_out.photos, open_photo=open_photo)
            names = np.array(table.names)
            labels = np.searchsorted(names, np.array(held_out.names)[held_out.labels])
            folds.append(held(found.embeddings, labels))
        return results_of(pooled(folds))

    return kept(bench.run(pets(bench, kind, 0)).path / f"folds-{precision}.json", work)


@dataclass(frozen=True, eq=False)
class Held:
    """Of one fold: the similarity of each pair with the cats it shows, and of each photo whether it found its cat."""

    scores: Float[np.ndarray, " p"]
    left: Int[np.ndarray, " p"]
    right: Int[np.ndarray, " p"]
    found: Float[np.ndarray, " q"]
    identity: Int[np.ndarray, " q"]


def held(embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Held:
    left, right = np.triu_indices(len(labels), 1)
    ranked = rank_queries(embeddings, labels)
    scores = np.einsum("ij,ij->i", embeddings[left], embeddings[right])
    return Held(scores, labels[left], labels[right], ranked.figures((1,))["recall_at_1"], ranked.identity)


def pooled(folds: Sequence[Held]) -> dict[str, Outcome]:
    """The figures of all folds as one, and their replicates over all of their identities."""
    scores, left, right, found, identity = (
        np.concatenate([getattr(fold, name) for fold in folds]) for name in Held.__dataclass_fields__
    )
    counts = roc_counts(scores[left == right], scores[left != right])
    drawn = verification_replicates(scores, left, right, replicates=REPLICATES, seed=SEED)
    ranked = mean_replicates({"recall_at_1": found}, identity, replicates=REPLICATES, seed=SEED)
    figures = {"auc": roc_auc(counts), "best_accuracy": best_accuracy(counts, balanced=True)[0]}
    replicates = {"auc": drawn["auc"], "best_accuracy": drawn["best_balanced_accuracy"]}
    return {
        "verification": Outcome(figures, replicates),
        "retrieval": Outcome({"recall_at_1": float(found.mean())}, ranked),
    }


def _cells(found: Results, first: Results) -> list[str]:
    figures = [over_seeds([found], path) for path in (AUC, ACCURACY)]
    recall = [over_seeds([found], RECALL)] if "retrieval" in found else []
    return [*figures, "" if found is first else paired([first], [found], ACCURACY), *recall]
