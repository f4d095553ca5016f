"""Which lost pets a found one may be: ranking, filters, dates, routers."""

from dataclasses import replace

import numpy as np
import pytest

from familiar.core.errors import Contradiction, FamiliarError, NotInGallery
from familiar.gallery import Gallery
from familiar.gallery.edits import corrections
from familiar.gallery.search.search import search_identities
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets.candidates import (
    PetFilter,
    compare_pets,
    is_impossible,
    rank_candidates,
    rank_pets,
)
from familiar.integrations.lost_pets.register import dismiss, reunite, set_reports
from familiar.integrations.lost_pets.reports import Report
from support.pet_register import add_pet
from support.small_gallery import SPACE, UNCALIBRATED_SPACE, draw_individuals, enroll_vectors

ELM = Report("lost", "cat", "12 Elm Street", "2026-05-01")


@pytest.fixture
def found_pet(gallery: Store) -> int:
    """A found pet that is Luna, among six lost ones."""
    for axis, (name, report) in enumerate(
        [
            ("Luna", ELM),
            ("Tom", replace(ELM, location="Harbor", reported_on="2026-05-10")),
            ("Mia", replace(ELM, species="dog", reported_on="2026-06-02")),
            ("Rex", Report("lost", "dog")),
            ("Kim", None),
            ("Zoe", replace(ELM, status="home")),
        ]
    ):
        add_pet(gallery, axis, 3, name, report)
    return add_pet(gallery, 0, 2, "Gray", Report("found", "", "Elm Street 3", "2026-05-20"))


def names(gallery: Store, identity: int, k: int = 10, **fields: str | bool) -> set[str | None]:
    return {
        candidate.pet.name
        for candidate in rank_candidates(Gallery(gallery), identity, k, only=PetFilter(**fields)).candidates  # pyright: ignore[reportArgumentType]
    }


def test_lost_pets_are_ranked_with_probability_and_best_pair(gallery: Store, found_pet: int):
    ranking = rank_candidates(Gallery(gallery), found_pet)
    assert [each.pet.identity for each in rank_candidates(Gallery(gallery), 1).candidates] == [found_pet]
    assert ranking.compared == len(ranking.candidates) == 5  # neither Zoe, who is home, nor the pet itself
    first = ranking.candidates[0]
    assert (first.pet.name, first.match.known) == ("Luna", True)
    assert first.match.probability is not None
    assert first.match.probability > 0.9
    means = [candidate.match.mean for candidate in ranking.candidates]
    assert means == sorted(means, reverse=True)
    faces = gallery.faces()
    vectors = {face: faces.unit_rows(faces.rows_of(np.array([face])))[0] for face in faces.ids.tolist()}
    pairs = {(query, face): vectors[query] @ vectors[face] for query in ranking.query_faces for face in first.pet.best}
    best = max(pairs, key=pairs.__getitem__)
    assert (ranking.query_faces[first.photo], first.face) == best
    assert first.pair_similarity == pytest.approx(pairs[best], abs=1e-6)


def test_ranking_agrees_with_a_search_for_the_mean(gallery: Store, found_pet: int):
    ranking = rank_candidates(Gallery(gallery), found_pet)
    stored = gallery.stored_faces()
    rows = stored.rows_of(np.array(ranking.query_faces))
    mean = stored.unit_rows(rows).mean(axis=0)
    matches = search_identities(gallery, mean / np.linalg.norm(mean), 10)
    expected = [match.identity for match in matches if match.identity in {c.pet.identity for c in ranking.candidates}]
    assert [candidate.pet.identity for candidate in ranking.candidates] == expected
    photos = rank_pets(Gallery(gallery), stored.unit_rows(rows))
    assert [c.match for c in photos.candidates] == [c.match for c in ranking.candidates]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"species": "CAT"}, {"Luna", "Tom", "Kim"}),
        ({"species": "dog"}, {"Mia", "Rex", "Kim"}),
        ({"location": "elm"}, {"Luna", "Mia", "Rex", "Kim"}),
        ({"location": " HARBOR "}, {"Tom", "Rex", "Kim"}),
        ({"since": "2026-05-05"}, {"Tom", "Mia", "Rex", "Kim"}),
        ({"until": "2026-05"}, {"Luna", "Tom", "Rex", "Kim"}),
        ({"until": "2026-05-01"}, {"Luna", "Rex", "Kim"}),
        ({"possible_dates": True}, {"Luna", "Tom", "Rex", "Kim"}),
        ({"species": "cat", "location": "harbor"}, {"Tom", "Kim"}),
    ],
)
def test_filters_leave_out_only_pets_that_are_known_to_differ(
    gallery: Store, found_pet: int, fields: dict[str, str | bool], expected: set[str]
):
    assert names(gallery, found_pet, **fields) == expected
    ranking = rank_candidates(Gallery(gallery), found_pet, only=PetFilter(**fields))  # pyright: ignore[reportArgumentType]
    assert ranking.filtered == 5 - len(expected)


def test_impossible_dates_are_marked(gallery: Store, found_pet: int):
    marked = {c.pet.name for c in rank_candidates(Gallery(gallery), found_pet).candidates if c.impossible_dates}
    assert marked == {"Mia"}
    assert not is_impossible(ELM, replace(ELM, reported_on="2020-01-01"))
    assert not is_impossible(ELM, Report("found"))
    assert not is_impossible(ELM, Report("found", reported_on=ELM.reported_on))


@pytest.mark.parametrize("date", ["May", "2026-5", "2026-05-01T12:00:00"])
def test_filter_rejects_other_dates(date: str):
    with pytest.raises(Contradiction, match="written as 2026, 2026-05 or"):
        PetFilter(since=date)
    with pytest.raises(Contradiction, match="written as 2026, 2026-05 or"):
        PetFilter(until=date)


def test_pet_that_is_home_has_no_candidates(gallery: Store, found_pet: int):
    reunite(Gallery(gallery), 1, found_pet)
    with pytest.raises(Contradiction, match="Luna is home"):
        rank_candidates(Gallery(gallery), 1)


def test_pet_without_photos_is_counted_but_not_compared(gallery: Store, found_pet: int):
    with gallery.write() as repository:
        empty = repository.identities.create()
    set_reports(Gallery(gallery), {empty: Report("lost", note="no photo")})
    ranking = rank_candidates(Gallery(gallery), found_pet)
    assert [pet.identity for pet in ranking.without_photo] == [empty]
    assert ranking.compared == 5
    with pytest.raises(FamiliarError, match="has no photo to compare"):
        rank_candidates(Gallery(gallery), empty)


def test_single_comparison_is_that_of_the_ranking(gallery: Store, found_pet: int):
    ranking = rank_candidates(Gallery(gallery), found_pet)
    for candidate in ranking.candidates:
        assert compare_pets(Gallery(gallery), found_pet, candidate.pet.identity) == (candidate, ranking.query_faces)
    dismiss(Gallery(gallery), found_pet, 1)
    with pytest.raises(NotInGallery, match="no candidate"):
        compare_pets(Gallery(gallery), found_pet, 1)


def test_uncalibrated_gallery_has_similarities_alone(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("uncalibrated") / "gallery"
    with Store.create(folder, UNCALIBRATED_SPACE) as gallery:
        empty = rank_pets(Gallery(gallery), draw_individuals([1]))
        assert (empty.candidates, empty.compared, empty.filtered) == ((), 0, 0)
        add_pet(gallery, 0, 3, "Luna")
        (candidate,) = rank_pets(Gallery(gallery), draw_individuals([2], seed=7)).candidates
    assert candidate.match.probability is None
    assert candidate.match.mean > 0.9


def test_species_of_a_router_are_never_compared(tmp_path_factory: pytest.TempPathFactory):
    parts = tuple(replace(SPACE, species=(name,), embedding_dim=8, prefixes=(8,)) for name in ("cat", "dog"))
    space = replace(SPACE, parts=parts, prefixes=(16,))
    cats, dogs = (draw_individuals([0] * axis + [3])[:, axis : axis + 1] for axis in (0, 8))
    with Store.create(tmp_path_factory.mktemp("router") / "gallery", space) as gallery:
        for name, axis, column in (("Luna", cats, 0), ("Rex", dogs, 8)):
            embeddings = np.zeros((3, 16), np.float32)
            embeddings[:, column] = np.sign(axis[:, 0])
            corrections.split(gallery, enroll_vectors(gallery, embeddings, name), name)
        query = np.zeros((3, 16), np.float32)
        query[:2, 0], query[2, 8] = 1, 1  # a cat on two photos; on the third the router sees a dog
        ranking = rank_pets(Gallery(gallery), query)
    assert [(each.pet.name, each.match.mean) for each in ranking.candidates] == [("Luna", pytest.approx(1, abs=1e-3))]
