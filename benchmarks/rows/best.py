"""The strongest embedders of people and of pets that can be trained from what is here; nothing is chosen on test."""

from collections.abc import Mapping
from dataclasses import replace

from familiar.evaluation.results import at_path
from rows.bench import Bench, Judged, Training
from rows.figures import figure, mean_of, number, paired, table
from rows.history import read_history
from rows.plots import whiskers
from rows.shared import ANIMALS, CATS, DEV_TEST, DEV_TRAIN, GENTLE, HEADLINES, NO_LEAKS, PEOPLE, PRETRAINED

TITLE = "The best we can"
SETTINGS = (
    *PRETRAINED,
    *GENTLE,
    "model.dropout=0.2",
    "loss.label_smoothing=0",
    "loss.margin_rad=0 to 0.3 over 0.334",
    "optimizer.lr=1e-3",
    "optimizer.backbone_lr=2e-4",
    "optimizer.warmup_epochs=1",
    "split.min_photos=2",
    "split.validation=0.04",
    "validation.best_by=auc",
)
TRIPLETS_BESIDE = ("loss.triplet_weight=1", "sampler.identities=24", "sampler.photos=4")
COMPILED = ("--compile", "--max-photos", "20")


def at_px(size: int) -> tuple[str, str]:
    return f"input.size_px={size}", f"input.resize_px={size}"


def for_epochs(count: int, validations: int = 2) -> tuple[str, str]:
    return f"budget.epochs={count}", f"validation.every_epochs={count // validations}"


def taught_by(bench: Bench, teachers: list[Training]) -> tuple[str, ...]:
    return (f"distill.teacher={','.join(str(bench.run(teacher).bundle) for teacher in teachers)}",)


# People are tried out on a tenth of DevTrain that is held out, and LFW's test people are judged once, at the end.
def people(name: str, *settings: str, held_out: float = 0.1) -> Training:
    chosen = (*SETTINGS, f"split.test={held_out}", *settings)
    return Training(f"best/people-{name}", "pet-mobile", PEOPLE, chosen, (*DEV_TRAIN, *COMPILED))


PEOPLE_TRIED = {
    "112 px": people("112", *at_px(112), *for_epochs(12)),
    "192 px": people("192", *at_px(192), *for_epochs(12)),
    "192 px, triplets beside": people("triplets", *at_px(192), *for_epochs(12), *TRIPLETS_BESIDE),
    "192 px, people with one photo too": people("single", *at_px(192), *for_epochs(8), "split.min_photos=1"),
}
HELD_OUT_PEOPLE = Judged("held-out", PEOPLE, (*DEV_TRAIN, "--split", "test", *HEADLINES, *NO_LEAKS))
