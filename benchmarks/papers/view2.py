"""View 2 of LFW by its own rule: train on nine folds of people, judge the tenth's 600 pairs, ten times.

RUNS has the teacher `sface.onnx`, imported as a bundle (docs/how-to/import-a-network.md).
"""

from pathlib import Path
from statistics import mean, stdev

from papers.bench import Bench, Evaluation, Training
from papers.circle import V2
from papers.facenet import BATCH_128
from papers.figures import number, table, value_at
from papers.shared import NO_LEAKS, PEOPLE, PRETRAINED, at_px

TITLE = "View 2 of LFW"
FOLDS, PAIRS = 10, 600  # and pairs in a fold, half of them of one person
PATHS = {"ROC AUC": "verification.auc", "accuracy": "verification.at_bundle_thresholds.balanced.accuracy"}
RECIPES = {
    "FaceNet, NNS2, semi-hard": ("facenet-small", ("loss.name=semi_hard", *BATCH_128, *at_px(96))),
    "circle loss, V2, batch_all": (
        V2,
        ("loss.mining=batch_all", "budget.epochs=8", "optimizer.decay_from=0.4", "optimizer.decay_to=1"),
    ),
    "person-nano, taught by SFace": (
        "person-nano",
        (*PRETRAINED, "distill.teacher=RUNS/sface.onnx", "split.min_photos=1"),
    ),
}


def training(name: str, fold: int) -> Training:
    """Define a training on the people of all folds but one."""
    recipe, settings = RECIPES[name]
    return Training(
        f"view2/{recipe}-{fold}",
        recipe,
        PEOPLE,
        ("split.min_photos=2", "split.test=0", *settings),
        ("--identities", f"RUNS/view2/people-without-{fold}.txt", "--max-photos", "12"),
    )


def evaluation(fold: int) -> Evaluation:
    options = ("--pairs", f"RUNS/view2/pairs-{fold}.txt", "--suite", "verification", *NO_LEAKS)
    return Evaluation("fold", PEOPLE, options)


def measure(bench: Bench) -> str:
    write_folds(bench.photos / PEOPLE[0], bench.runs / "view2")
    rows: list[list[str]] = []
    for name in RECIPES:
        results = []
        for fold in range(FOLDS):
            bench.train([training(name, fold)], (evaluation(fold),))
            results.append(bench.results(training(name, fold), "fold"))
        rows.append([name, *(with_error([value_at(each, path) for each in results]) for path in PATHS.values())])
    return (
        "Ten trainings, each on nine folds of people and judged by the tenth's pairs at the threshold that it chose "
        f"in validation; mean and standard error over the folds.\n\n{table(['', *PATHS], rows)}"
    )


def with_error(values: list[float]) -> str:
    """Format a mean over folds with its standard error."""
    return f"{number(mean(values), 4)} ± {number(stdev(values) / len(values) ** 0.5, 4)}"


def write_folds(lfw: Path, folder: Path) -> None:
    """Write the people of all folds but one, and the pairs of that fold, for each fold."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = (lfw / "pairs.txt").read_text().splitlines()[1:]
    people = folds_of_people((lfw / "people.txt").read_text().splitlines())
    for fold in range(FOLDS):
        others = [name for other, names in enumerate(people) if other != fold for name in names]
        (folder / f"people-without-{fold}.txt").write_text("\n".join(others) + "\n")
        lines = [str(PAIRS // 2), *pairs[fold * PAIRS : (fold + 1) * PAIRS]]
        (folder / f"pairs-{fold}.txt").write_text("\n".join(lines) + "\n")


def folds_of_people(lines: list[str]) -> list[list[str]]:
    """Read LFW's `people.txt`: the number of folds; of each, the number of its people, and a line for each person."""
    folds: list[list[str]] = []
    start = 1
    for _ in range(int(lines[0])):
        count = int(lines[start])
        folds.append([line.split()[0] for line in lines[start + 1 : start + 1 + count]])
        start += 1 + count
    return folds
