"""Compare answers to the questions of `gallery review` with as many answers to random questions.

    gallery.py answers PHOTOS PEOPLE_MODEL --output PICTURE.png [--answers 100] [--albums cats23,dogs29,lfw]

Albums are collections that their models have never seen. A gallery is clustered as by default, then ten questions at a
time are answered with the true identities; every answer is a correction as a user makes it. "same candidates" draws
from the thousand questions of highest expected gain, "any two" asks about two random clusters.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from clustering import PEOPLE, Labeled, embed_collection
from papers.plots import panels, save

from familiar.core.gallery_types import Question
from familiar.embedding.embedder import Embedder
from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.review.questions import answer_question, propose_questions
from familiar.gallery.same.assignments import UNASSIGNED, load_assignments
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.metrics.clustering import contingency

PER_ROUND = 10
CANDIDATES = 1000
SEED = 0

Ask = Callable[[Store, np.random.Generator], list[Question]]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("people_model", type=Path, metavar="PEOPLE_MODEL")
    parser.add_argument("--pet-model", default="pet-mobile")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--albums", default="cats23,dogs29,pandas31,orl,lfw")
    options = parser.parse_args(arguments)
    scores: dict[str, dict[str, list[float]]] = {}
    for name in options.albums.split(","):
        embedder = Embedder(options.people_model if name in PEOPLE else options.pet_model)
        rows, space = embed_collection(embedder, name, options), Space.from_metadata(embedder.metadata)
        scores[name] = {how: scores_after_answers(space, rows, ask, options.answers) for how, ask in ASK.items()}
    table(scores, options.answers)
    draw(scores, options.output)


def scores_after_answers(space: Space, rows: Labeled, ask: Ask, answers: int) -> list[float]:
    """Compute the mean of pairwise and B-cubed F before any answer, and after every ten."""
    rng = np.random.default_rng(SEED)
    labels = np.unique(rows.identities, return_inverse=True)[1]
    with tempfile.TemporaryDirectory() as folder, Store.create(Path(folder, "gallery"), space) as gallery:
        names = [f"{row}.jpg" for row in range(len(labels))]
        faces = np.array(enroll_embeddings(gallery, rows.embeddings, names, space.space_id))
        truth = dict(zip(faces.tolist(), labels.tolist(), strict=True))
        cluster(gallery)
        scores = [score(gallery, labels)]
        for _ in range(answers // PER_ROUND):
            for question in ask(gallery, rng):
                answer_question(gallery, question, truth[question.first_face] == truth[question.second_face])
            scores.append(score(gallery, labels))
    return scores


def score(gallery: Store, labels: np.ndarray, rows: np.ndarray | None = None) -> float:
    """Compute the mean of pairwise and B-cubed F of some rows (None: of all)."""
    identity = load_assignments(gallery).identity
    unassigned = identity == UNASSIGNED
    groups = np.where(unassigned, -1 - np.arange(len(unassigned)), identity)
    agreement = contingency(labels, groups) if rows is None else contingency(labels[rows], groups[rows])
    return (agreement.pairwise().f + agreement.bcubed().f) / 2


def proposed(gallery: Store, _: np.random.Generator) -> list[Question]:
    return propose_questions(gallery, PER_ROUND)


def same_candidates(gallery: Store, rng: np.random.Generator) -> list[Question]:
    candidates = propose_questions(gallery, CANDIDATES)
    return [candidates[index] for index in rng.permutation(len(candidates))[:PER_ROUND]]


def any_two(gallery: Store, rng: np.random.Generator) -> list[Question]:
    assignments = load_assignments(gallery)
    questions: list[Question] = []
    used: set[int] = set()
    for first_row, second_row in rng.permutation(len(assignments.identity))[: 4 * PER_ROUND].reshape(-1, 2):
        first, second = (
            None if assignments.identity[face_row] == UNASSIGNED else int(assignments.identity[face_row])
            for face_row in (first_row, second_row)
        )
        if len(questions) < PER_ROUND and (first is None or first != second) and not {first, second} & used:
            faces = int(assignments.faces.ids[first_row]), int(assignments.faces.ids[second_row])
            questions.append(Question("merge", *faces, first, second, 0.0, 0.5, 0.0))
            used |= {first, second} - {None}
    return questions


ASK: dict[str, Ask] = {"review": proposed, "same candidates": same_candidates, "any two": any_two}


def table(scores: dict[str, dict[str, list[float]]], answers: int) -> None:
    steps = sorted({0, min(2, answers // PER_ROUND), answers // PER_ROUND // 2, answers // PER_ROUND})
    print(f"| album | questions | {' | '.join(f'{PER_ROUND * step} answers' for step in steps)} |")
    print("|---|---|" + "---|" * len(steps))
    for name, lines in scores.items():
        for how, reached in lines.items():
            print(f"| {name} | {how} | {' | '.join(f'{reached[step]:.3f}' for step in steps)} |")


def draw(scores: dict[str, dict[str, list[float]]], path: Path) -> None:
    figure, panel_axes = panels(len(scores), 3.2)
    for axes, (name, lines) in zip(panel_axes, scores.items(), strict=True):
        for (how, reached), color in zip(lines.items(), LIGHT.series, strict=False):
            axes.plot(PER_ROUND * np.arange(len(reached)), reached, color=color, linewidth=1.8, label=how)
        axes.set_title(name, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.set_xlabel("answers", color=LIGHT.ink, fontsize=TEXT_PT - 1)
    panel_axes[0].set_ylabel("mean of both F scores", color=LIGHT.ink, fontsize=TEXT_PT - 1)
    lines, names = panel_axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, frameon=False, labelcolor=LIGHT.ink)
    save(figure, path)
