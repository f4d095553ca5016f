"""A new network in an old gallery: how many people it finds by how much it was held to the old embeddings."""

from functools import partial

from papers import losses
from papers.bench import Bench, Training, cached
from papers.figures import over_seeds, paired, table
from papers.harmonic import NEW_ALONE, OLD, new_in_old
from papers.shared import ANIMALS, DEV_TRAIN, PEOPLE, SMALL
from papers.vectors import BRIDGED, COMPATIBLE, OLD_OLD

TITLE = "Harmonic embeddings: a sweep of the compatible weight"
WEIGHTS = (0.5, 1, 2, 5)
EPOCHS = (6, 18)
RECALL = "across.recall_at_1"


def compatible(bench: Bench, weight: float, epochs: int) -> Training:
    settings = (
        *(*SMALL, *losses.LOSSES["ArcFace"], f"loss.compatible_with={bench.run(OLD).bundle}", "seed=0"),
        *(f"loss.compatible_weight={weight:g}", f"budget.epochs={epochs}", f"validation.every_epochs={epochs}"),
    )
    options = (*DEV_TRAIN, "--max-photos", "12")
    return Training(f"upgrade/{weight:g}-{epochs}", "pet-mobile", (*PEOPLE, *ANIMALS), settings, options)


def measure(bench: Bench) -> str:
    bench.train([OLD, NEW_ALONE[0]])
    rows: list[list[str]] = []
    for epochs in EPOCHS:
        for weight in WEIGHTS:
            training = compatible(bench, weight, epochs)
            bench.train([training])
            file = bench.runs / training.name / "people.json"
            ways = cached(file, partial(new_in_old, bench, NEW_ALONE[0], training, training, "people"))
            old, names = ways[OLD_OLD], (COMPATIBLE, "new compatible / new compatible", BRIDGED["gallery"])
            cells = (f"{over_seeds([ways[name]], RECALL)}; {paired([old], [ways[name]], RECALL)}" for name in names)
            rows.append([f"{weight:g}", str(epochs), over_seeds([old], RECALL), *cells])
    head = ["weight", "epochs", "old / old", "new / old", "new / new", "bridged gallery"]
    return f"People: recall@1, and its difference from old / old.\n\n{table(head, rows)}"
