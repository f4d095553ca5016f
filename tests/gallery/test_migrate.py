"""Migrating a gallery to another model: corrections stay, and the old model works until the swap."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from familiar.core.errors import FamiliarError, GalleryBusy, NotInGallery, SpaceMismatch
from familiar.core.types import Face, Photo
from familiar.core.vectors import normalize
from familiar.detection.alignment import align
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.edits.forget import forget_photos
from familiar.gallery.edits.manual_faces import delete_face, set_face_box
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.search.search import search_faces
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer import migrate as migrate_module
from familiar.gallery.transfer.check import check
from familiar.gallery.transfer.migrate import MigrationResult, migrate
from familiar.photos.decoding import load_photo, save_photo
from support.small_gallery import DECISION_TABLES, draw_pets, enroll_vectors, rows


def unmigrated_rows(gallery: Store) -> dict[str, Any]:
    """Return the rows that a migration must not change."""
    tables = rows(gallery, (*DECISION_TABLES, "photos", "decisions", "changes"))
    with gallery.read() as repository:
        faces = repository.connection.execute(
            "SELECT id, photo_id, left_px, right_px, score, quality, species FROM faces"
        )
        return tables | {"faces": faces.fetchall()}


def enroll_and_correct(gallery: Store, embedder: Embedder, photos: list[Path]) -> dict[str, Any]:
    """Enroll, cluster and make corrections of several kinds; return the rows that must stay."""
    enroll(gallery, embedder, photos, species="cats")
    cluster(gallery)
    corrections.split(gallery, [1, 2], "Mia")
    corrections.split(gallery, [4, 5], "Tom")
    corrections.reject(gallery, [7], 1)
    corrections.mark_different(gallery, 10, 13)
    return unmigrated_rows(gallery)


@pytest.fixture
def enrolled(album: Store, embedder: Embedder, pets: list[Path]) -> Store:
    enroll(album, embedder, pets)
    return album


def with_metadata(embedder: Embedder, **changed: Any) -> Embedder:
    """Return an embedder of the same network with changed metadata."""
    bundle = embedder.bundle
    return Embedder(replace(bundle, metadata=replace(bundle.metadata, **changed)), threads=2)


def test_reembeds_every_photo_and_keeps_corrections(
    album: Store, embedder: Embedder, other_embedder: Embedder, pets: list[Path]
):
    before = enroll_and_correct(album, embedder, pets)
    done: list[int] = []
    result = migrate(album, other_embedder, on_batch=done.append)
    assert result == MigrationResult(24, 0, 0, 0, None)
    assert done[-1] == 24
    assert unmigrated_rows(album) == before
    assert album.space == Space.from_metadata(other_embedder.metadata)
    np.testing.assert_allclose(album.faces().embeddings, embed_photos(other_embedder, pets).embeddings, atol=1e-5)
    assert rows(album, ("next_embeddings",)) == {"next_embeddings": []}
    assert check(album).problems == ()
    assert enroll(album, other_embedder, pets).known == 24
    with pytest.raises(SpaceMismatch):
        enroll(album, embedder, pets)
    while decisions(album):
        undo(album)
    assert rows(album)["assignments"] == []


def test_same_space_with_smaller_dim_truncates_embeddings(album: Store, embedder: Embedder, pets: list[Path]):
    with album.write() as repository:
        repository.settings.replace_space(replace(album.space, prefixes=(16, 8)))
    before = enroll_and_correct(album, embedder, pets)
    vectors = album.faces().embeddings
    shorter = with_metadata(embedder, embedding_dim=8, prefixes=(8,))
    assert migrate(album, shorter) == MigrationResult(0, 24, 0, 0, None)
    np.testing.assert_allclose(album.faces().embeddings, normalize(vectors[:, :8]), atol=1e-6)
    assert album.space.embedding_dim == 8
    assert unmigrated_rows(album) == before
    with pytest.raises(SpaceMismatch, match="valid prefixes are 8, not 5"):
        migrate(album, with_metadata(embedder, embedding_dim=5))


def test_compatible_model_of_the_same_length_embeds_the_photos_at_hand_and_keeps_the_rest(
    enrolled: Store, embedder: Embedder
):
    vectors = enrolled.faces().embeddings
    enroll_vectors(enrolled, vectors[:2].astype(np.float32))  # without photos
    delete_face(enrolled, 5)
    again = with_metadata(embedder, calibration=replace(embedder.metadata.calibration, slope=9.0))
    assert migrate(enrolled, again) == MigrationResult(23, 0, 0, 2, None)
    assert enrolled.space.gallery_calibration.slope == 9.0
    undo(enrolled)
    np.testing.assert_allclose(enrolled.faces().embeddings, np.concatenate([vectors, vectors[:2]]), atol=1e-5)


def longer_embedder(embedder: Embedder) -> Embedder:
    """A model whose embeddings begin, once truncated, with those of `embedder`, and have eight more components."""

    def lengthen(crops_u8: np.ndarray) -> np.ndarray:
        short = embedder.run(crops_u8)
        return np.concatenate([0.8 * short, 0.6 * normalize(short[:, ::-1][:, :8] + np.float32(0.01))], axis=1)

    dim = embedder.metadata.embedding_dim
    metadata = replace(embedder.metadata, embedding_dim=dim + 8, prefixes=(dim, dim + 8))
    return Embedder(replace(embedder.bundle, metadata=metadata), threads=2, network=lengthen)


def test_compatible_longer_model_searches_at_once_and_takes_the_gallery_over(
    album: Store, embedder: Embedder, pets: list[Path]
):
    before = enroll_and_correct(album, embedder, pets)
    dim, longer = embedder.metadata.embedding_dim, longer_embedder(embedder)
    album.check_space(*longer.metadata.space, to_compare=True)
    queries = embed_photos(longer, pets).embeddings
    for row in (0, 7, 23):
        (hit,) = search_faces(album, album.truncate(queries[row : row + 1])[0], 1)
        assert hit.path == str(pets[row])
        assert hit.similarity == pytest.approx(1, abs=1e-4)
    enroll_vectors(album, album.faces().unit_rows()[:1])  # without a photo
    assert migrate(album, longer) == MigrationResult(24, 0, 0, 1, None)
    assert album.space.embedding_dim == dim + 8
    np.testing.assert_allclose(album.faces().embeddings[:24], queries, atol=1e-4)
    assert not album.faces().embeddings[24, dim:].any()
    (hit,) = search_faces(album, album.faces().unit_rows()[24], 1)
    assert hit.path == "photo 0.jpg"
    assert [each.path for each in search_faces(album, normalize(queries[:1, :dim])[0], 2)][:1] == [str(pets[0])]
    assert unmigrated_rows(album).keys() == before.keys()


def test_incompatible_lengths_of_one_space_are_rejected(album: Store, embedder: Embedder, pets: list[Path]):
    enroll(album, embedder, pets)
    dim = embedder.metadata.embedding_dim
    with pytest.raises(SpaceMismatch):
        migrate(album, with_metadata(embedder, embedding_dim=dim + 8, prefixes=(dim + 8,)))
    with pytest.raises(SpaceMismatch):
        album.check_space(embedder.metadata.space_id, dim + 8, (dim + 8,), to_compare=True)
    with pytest.raises(SpaceMismatch):
        album.check_space("another", dim, (dim,), to_compare=True)


@pytest.fixture
def crowd(tmp_path: Path) -> list[Path]:
    """Seventy photos that a test may move, change and delete."""
    return draw_pets(tmp_path / "crowd", 10, 7, seed=5)


def brighten(path: Path) -> None:
    """Make a photo a little brighter."""
    pixels = np.minimum(load_photo(path).rgb_u8, 252) + np.uint8(3)
    save_photo(Photo(pixels, path, (48, 48)), path)


@pytest.mark.slow
def test_missing_photos_are_mapped_by_a_bridge(
    album: Store, embedder: Embedder, other_embedder: Embedder, crowd: list[Path]
):
    enroll_and_correct(album, embedder, crowd)
    enroll_vectors(album, album.faces().unit_rows()[:2])  # without photos
    before = unmigrated_rows(album)
    expected = embed_photos(other_embedder, crowd).embeddings
    missing = [0, 6, 30]
    for index in missing[:2]:
        crowd[index].unlink()
    crowd[30].write_bytes(crowd[31].read_bytes())  # now another photo
    result = migrate(album, other_embedder)
    assert (result.reembedded_faces, result.mapped_faces) == (67, 5)
    assert result.mapped_mean_cosine is not None
    assert 0.0 < result.mapped_mean_cosine <= 1.0
    present = np.setdiff1d(np.arange(70), missing)
    np.testing.assert_allclose(album.faces().embeddings[present], expected[present], atol=1e-5)
    for index in missing:  # closer to the new model's embedding than another individual's would be
        assert album.faces().embeddings[index] @ expected[index] > 0.3
    assert unmigrated_rows(album) == before


def test_rejects_a_bridge_with_too_few_photos(
    album: Store, embedder: Embedder, other_embedder: Embedder, pets: list[Path], tmp_path: Path
):
    (lost,) = draw_pets(tmp_path / "lost", 1, 1, seed=9)
    before = enroll_and_correct(album, embedder, [*pets, lost])
    vectors = album.faces().embeddings
    aside = lost.rename(lost.with_name("aside.png"))
    with pytest.raises(FamiliarError, match=r"photos of 1 faces are missing .*0-0\.png\), and 24 others are too few"):
        migrate(album, other_embedder)
    assert album.space == Space.from_metadata(embedder.metadata)
    np.testing.assert_array_equal(album.faces().embeddings, vectors)
    assert len(rows(album, ("next_embeddings",))["next_embeddings"]) == 24
    assert enroll(album, embedder, pets).known == 24
    aside.rename(lost)  # it is back
    done: list[int] = []
    assert migrate(album, other_embedder, on_batch=done.append).reembedded_faces == 25
    assert done == [1]  # the other embeddings were kept
    assert unmigrated_rows(album) == before


def test_resumes_after_an_interruption(enrolled: Store, other_embedder: Embedder, pets: list[Path]):
    old, done = enrolled.space, list[int]()

    def stop(count: int) -> None:
        done.append(count)
        if count == 8:
            raise KeyboardInterrupt

    fours = Embedder(other_embedder.bundle, threads=6)
    with pytest.raises(KeyboardInterrupt):
        migrate(enrolled, fours, on_batch=stop)
    assert enrolled.space == old
    forget_photos(enrolled, [pets[0], pets[20]])
    assert migrate(enrolled, fours, on_batch=done.append).reembedded_faces == 22
    assert done[:2] == [4, 8]
    assert done[-1] == 24 - 8 - 1  # one of the two forgotten photos was embedded already


def test_error_during_the_swap_keeps_the_old_model(
    enrolled: Store, embedder: Embedder, other_embedder: Embedder, pets: list[Path], monkeypatch: pytest.MonkeyPatch
):
    before, vectors, old = unmigrated_rows(enrolled), enrolled.faces().embeddings, enrolled.space
    swap = migrate_module._swap_embeddings

    def swap_but_fail_at_the_end(*arguments: Any) -> None:
        with monkeypatch.context() as patch:  # what the last statement of the swap calls
            patch.setattr(Space, "to_json", Mock(side_effect=RuntimeError))
            swap(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(migrate_module, "_swap_embeddings", swap_but_fail_at_the_end)
        with pytest.raises(RuntimeError):
            migrate(enrolled, other_embedder)
    assert (enrolled.space, unmigrated_rows(enrolled)) == (old, before)
    np.testing.assert_array_equal(enrolled.faces().embeddings, vectors)
    assert len(rows(enrolled, ("next_embeddings",))["next_embeddings"]) == 24
    third = with_metadata(embedder, space_id="third")  # for which these are of no use
    assert migrate(enrolled, third).reembedded_faces == 24
    np.testing.assert_allclose(enrolled.faces().embeddings, embed_photos(third, pets).embeddings, atol=1e-5)


@pytest.mark.slow
def test_photos_enrolled_edited_and_changed_during_migration_are_embedded(
    album: Store,
    folder: Path,
    embedder: Embedder,
    other_embedder: Embedder,
    crowd: list[Path],
    monkeypatch: pytest.MonkeyPatch,
):
    box = (2.0, 2.0, 46.0, 46.0)
    enroll(album, embedder, crowd[1:])
    crowd[4].unlink()
    load_pending_faces = migrate_module._load_pending_faces

    def load_then_change(gallery: Store) -> list[Any]:
        result = load_pending_faces(gallery)
        with Store.open(folder) as other:
            set_face_box(other, embedder, 2, box)
            delete_face(other, 7)
            brighten(crowd[1])
            changed = enroll(other, embedder, crowd[:4])
            assert (changed.edited, changed.photos) == (1, 1)
        monkeypatch.undo()
        return result

    monkeypatch.setattr(migrate_module, "_load_pending_faces", load_then_change)
    result = migrate(album, other_embedder)
    assert (result.reembedded_faces, result.mapped_faces) == (68, 1)
    (edited, late) = embed_photos(other_embedder, [crowd[1], crowd[0]]).embeddings
    np.testing.assert_allclose(album.faces().embeddings[[0, -1]], [edited, late], atol=1e-5)
    crop = align(load_photo(crowd[2]), Face(box, None, 1.0), other_embedder.metadata.preprocessing)
    np.testing.assert_allclose(album.faces().embeddings[1], other_embedder.embed([crop])[0], atol=1e-5)


def test_concurrent_migration_raises_gallery_busy(
    enrolled: Store, folder: Path, embedder: Embedder, other_embedder: Embedder
):
    third = with_metadata(embedder, space_id="third")
    started: list[int] = []

    def begin_another(done: int) -> None:
        if not started:
            started.append(done)
            with Store.open(folder) as second:
                migrate_module._begin_migration(second, second.space, Space.from_metadata(third.metadata))

    with pytest.raises(GalleryBusy, match="another process"):
        migrate(enrolled, other_embedder, on_batch=begin_another)
    assert enrolled.space.space_id == embedder.metadata.space_id
    assert migrate(enrolled, third).reembedded_faces == 24


@pytest.mark.slow
@pytest.mark.parametrize("shorter", [False, True])
def test_undo_restores_no_embedding_of_the_old_model(
    enrolled: Store, embedder: Embedder, other_embedder: Embedder, shorter: bool
):
    with enrolled.write() as repository:
        repository.settings.replace_space(replace(enrolled.space, prefixes=(16, 8)))
    set_face_box(enrolled, embedder, 1, (2.0, 2.0, 46.0, 46.0))
    delete_face(enrolled, 5)
    corrections.split(enrolled, [1, 2], "Mia")
    before = rows(enrolled)
    assert len(rows(enrolled, ("previous_faces",))["previous_faces"]) == 2
    migrate(enrolled, with_metadata(embedder, embedding_dim=8, prefixes=(8,)) if shorter else other_embedder)
    assert rows(enrolled) == before
    assert rows(enrolled, ("previous_faces",)) == {"previous_faces": []}
    assert [entry.kind for entry in decisions(enrolled)] == ["split"]
    assert undo(enrolled).kind == "split"
    with pytest.raises(NotInGallery, match="nothing to undo"):
        undo(enrolled)
    assert enrolled.faces().ids.tolist() == [1, 2, 3, 4, *range(6, 25)]
    assert check(enrolled).problems == ()
