"""What answers to `suggest` mend, beside as many answers to random questions.

    gallery.py answers MODEL DATA --output PICTURE.png [--answers 100] [--sets cats,orl,lfw,pooled]

A gallery is grouped, then asked ten questions at a time, which the true identities answer; every answer is a
correction as a user makes it. "same candidates": any of the thousand questions of highest worth, by chance. "any two":
any two groups. The gallery is grouped as it comes, at the model's threshold for few false accepts.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from grouping import SETS, Labeled, embedded, test_table
from papers.plots import TEXT_PT, panels, save

from familiar.embedding.embedder import Embedder
from familiar.evaluation.plots.chart import LIGHT
from familiar.gallery.clustering.assignments import UNASSIGNED, load_assignments
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.clustering.review_queue import Question, answer_question, propose_questions
from familiar.gallery.database.connection import Gallery, Space
from familiar.gallery.enrollment.enroll import enroll_embeddings
from familiar.metrics.clustering import contingency

AT_ONCE = 10
CANDIDATES = 1000
SEED = 0

Ask = Callable[[Gallery, np.random.Generator], list[Question]]


def main(given: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--sets", default="cats,orl,lfw,pooled")
    options = parser.parse_args(given)
    embedder = Embedder(options.model)
    sets = {name: embedded(embedder, test_table(options.data, name)) for name in SETS}
    sets["pooled"] = Labeled(*(np.concatenate([part[i] for part in sets.values()]) for i in (0, 1)))
    chosen = {name: sets[name] for name in options.sets.split(",")}
    found = {
        name: {
            how: mended(Space.from_metadata(embedder.metadata), rows, ask, options.answers) for how, ask in ASK.items()
        }
        for name, rows in chosen.items()
    }
    table(found, options.answers)
    draw(found, options.output)


def mended(space: Space, rows: Labeled, ask: Ask, answers: int) -> list[float]:
    """The mean of pairwise and B-cubed F before any answer, and after every ten."""
    rng = np.random.default_rng(SEED)
    labels = np.unique(rows.identities, return_inverse=True)[1]
    with tempfile.TemporaryDirectory() as folder, Gallery.create(Path(folder, "gallery"), space) as gallery:
        names = [f"{row}.jpg" for row in range(len(labels))]
        faces = np.array(enroll_embeddings(gallery, rows.embeddings, names, space.space_id))
        truth = dict(zip(faces.tolist(), labels.tolist(), strict=True))
        cluster(gallery)
        reached = [score(gallery, labels)]
        for _ in range(answers // AT_ONCE):
            for question in ask(gallery, rng):
                answer_question(gallery, question, truth[question.first_face] == truth[question.second_face])
            reached.append(score(gallery, labels))
    return reached


def score(gallery: Gallery, labels: np.ndarray) -> float:
    identity = load_assignments(gallery).identity
    alone = identity == UNASSIGNED
    groups = np.where(alone, -1 - np.arange(len(alone)), identity)
    found = contingency(labels, groups)
    return (found.pairwise().f + found.bcubed().f) / 2


def most_worth(gallery: Gallery, _: np.random.Generator) -> list[Question]:
    return propose_questions(gallery, AT_ONCE)


def same_candidates(gallery: Gallery, rng: np.random.Generator) -> list[Question]:
    every = propose_questions(gallery, CANDIDATES)
    return [every[place] for place in rng.permutation(len(every))[:AT_ONCE]]


def any_two(gallery: Gallery, rng: np.random.Generator) -> list[Question]:
    who = load_assignments(gallery)
    asked: list[Question] = []
    used: set[int] = set()
    for row, other in rng.permutation(len(who.identity))[: 4 * AT_ONCE].reshape(-1, 2):
        one, two = (None if who.identity[at] == UNASSIGNED else int(who.identity[at]) for at in (row, other))
        if len(asked) < AT_ONCE and (one is None or one != two) and not {one, two} & used:
            faces = int(who.faces.ids[row]), int(who.faces.ids[other])
            asked.append(Question("merge", *faces, one, two, 0.0, 0.5, 0.0))
            used |= {one, two} - {None}
    return asked


ASK: dict[str, Ask] = {"suggest": most_worth, "same candidates": same_candidates, "any two": any_two}


def table(found: dict[str, dict[str, list[float]]], answers: int) -> None:
    at = sorted({0, answers // AT_ONCE // 4, answers // AT_ONCE // 2, answers // AT_ONCE})
    print(f"| set | questions | {' | '.join(f'{AT_ONCE * step} answers' for step in at)} |")
    print("|---|---|" + "---|" * len(at))
    for name, lines in found.items():
        for how, reached in lines.items():
            print(f"| {name} | {how} | {' | '.join(f'{reached[step]:.3f}' for step in at)} |")


def draw(found: dict[str, dict[str, list[float]]], path: Path) -> None:
    figure, every = panels(len(found), 3.2)
    for axes, (name, lines) in zip(every, found.items(), strict=True):
        for (how, reached), color in zip(lines.items(), LIGHT.series, strict=False):
            axes.plot(AT_ONCE * np.arange(len(reached)), reached, color=color, linewidth=1.8, label=how)
        axes.set_title(name, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.set_xlabel("answers", color=LIGHT.ink, fontsize=TEXT_PT - 1)
    every[0].set_ylabel("mean of both Fs", color=LIGHT.ink, fontsize=TEXT_PT - 1)
    lines, names = every[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, frameon=False, labelcolor=LIGHT.ink)
    save(figure, path)
