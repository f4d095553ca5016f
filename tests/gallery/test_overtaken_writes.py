"""Another program writes between what a change reads and what it writes: it waits, or the change is refused."""

import contextlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from familiar.core.errors import Contradiction, GalleryBusy, NotInGallery
from familiar.core.gallery_types import Question
from familiar.embedding.embedder import Embedder
from familiar.gallery import gallery as gallery_module
from familiar.gallery.cluster import cluster as cluster_module
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections, manual_faces
from familiar.gallery.edits.forget import forget_identity
from familiar.gallery.edits.identity_state import NO_IDENTITY, check_identity_of_faces, check_states, read_states
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.gallery import Gallery
from familiar.gallery.review import questions
from familiar.gallery.review.questions import answer_question
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store import connection as connection_module
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer import import_export, migrate
from support.small_gallery import (
    draw_individuals,
    embedder_returning,
    enroll_vectors,
    groups,
)

RED, GREEN, BLUE = range(1, 4), range(4, 7), range(7, 10)


@pytest.fixture
def clustered(gallery: Store) -> Store:
    """Three individuals of three faces: #1, #2 and #3."""
    enroll_vectors(gallery, draw_individuals([3, 3, 3]))
    cluster(gallery)
    assert groups(gallery) == {frozenset(RED), frozenset(GREEN), frozenset(BLUE)}
    return gallery


def elsewhere(gallery: Store, change: Callable[[Store], object]) -> None:
    """Let another program change the gallery."""
    with Store.open(gallery.folder) as other:
        change(other)


def rename_all(gallery: Store) -> None:
    for number in (1, 2, 3):
        with contextlib.suppress(NotInGallery):
            corrections.name_identity(gallery, number, f"other {number}")


# --- what reads and writes in one transaction: the other program has to wait -----------------------------------------


def wait_after(monkeypatch: pytest.MonkeyPatch, gallery: Store, module: object, read: str) -> list[type[Exception]]:
    """Let another program try to write after each call of `module.read`; return what it got."""
    outcomes: list[type[Exception]] = []
    original = getattr(module, read)

    def read_then_try(*arguments, **options):
        result = original(*arguments, **options)
        monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.0)
        try:
            elsewhere(gallery, rename_all)
        except GalleryBusy as error:
            outcomes.append(type(error))
        return result

    monkeypatch.setattr(module, read, read_then_try)
    return outcomes


def table_of(gallery: Store, text: str) -> Path:
    path = gallery.folder / "table.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("module", "read", "change"),
    [
        (gallery_module, "resolve_identity", lambda gallery: Gallery(gallery, None).name(1, "Tom")),
        (gallery_module, "resolve_identity", lambda gallery: Gallery(gallery, None).merge(1, [2])),
        (gallery_module, "resolve_identity", lambda gallery: Gallery(gallery, None).move([4], 1)),
        (gallery_module, "resolve_face", lambda gallery: Gallery(gallery, None).split([4])),
        (gallery_module, "resolve_face", lambda gallery: Gallery(gallery, None).reject([4])),
        (gallery_module, "resolve_face", lambda gallery: Gallery(gallery, None).confirm([4])),
        (
            questions,
            "is_still_valid",
            lambda gallery: answer_question(gallery, Question("merge", 1, 4, 1, 2, 0.0, 0.0, 0.0), True),
        ),
        (
            import_export._PhotoLookup,
            "load",
            lambda gallery: import_export.import_csv(gallery, table_of(gallery, "path,name\nphoto 0.jpg,Tom\n")),
        ),
    ],
)
def test_nobody_writes_between_the_reading_and_the_writing(
    clustered: Store, monkeypatch: pytest.MonkeyPatch, module: object, read: str, change: Callable
):
    outcomes = wait_after(monkeypatch, clustered, module, read)
    change(clustered)
    assert outcomes
    assert not any("other" in name for name in load_assignments(clustered).names.values())
    elsewhere(clustered, rename_all)  # afterwards it may
    assert load_assignments(clustered).names[1] == "other 1"


# --- what takes long reads first, and is refused if that does not hold any more ---------------------------------------


def change_before_write(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, change: Callable[[], object]
) -> None:
    """Let something happen when `module.name` is called, which is after the reading and before the write."""
    original = getattr(module, name)

    def change_then_go_on(*arguments, **options):
        monkeypatch.setattr(module, name, original)
        change()
        return original(*arguments, **options)

    monkeypatch.setattr(module, name, change_then_go_on)


def delete_first_face(other: Store) -> None:
    manual_faces.delete_face(other, 1)


def move_first_box(other: Store) -> None:
    with embedder_returning(other.faces().unit_rows()[0]) as embedder:
        manual_faces.set_face_box(other, embedder, 1, (0, 0, 20, 20))


@pytest.mark.parametrize("change", [delete_first_face, move_first_box])
@pytest.mark.parametrize("source", ["folders", "names"])
def test_labels_of_faces_that_changed_during_the_import_are_refused(
    clustered: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, change: Callable
):
    (tmp_path / "import" / "Mia").mkdir(parents=True)
    photo = tmp_path / "import" / "Mia" / "photo 0.jpg"
    photo.touch()
    with clustered.write() as repository:
        repository.connection.execute("UPDATE photos SET path = ? WHERE id = 1", (bytes(photo),))
    monkeypatch.setattr(import_export, "find_photos", lambda *_, **__: [photo])

    def import_labels() -> None:
        if source == "folders":
            import_export.import_folders(clustered, tmp_path / "import")
        else:
            gallery = Gallery(clustered)
            gallery.assign_names({1: "Mia"}, gallery.faces())

    change_before_write(monkeypatch, import_export, "assign_labels", lambda: elsewhere(clustered, change))
    with pytest.raises(Contradiction, match="another program changed or deleted face 1 during the import"):
        import_labels()
    assert load_assignments(clustered).names == {}


def test_a_plan_has_the_faces_of_one_moment(clustered: Store, monkeypatch: pytest.MonkeyPatch):
    late = draw_individuals([3], seed=5)
    load = cluster_module.load_assignments

    def load_then_enroll(gallery: Store):
        assignments = load(gallery)
        elsewhere(gallery, lambda other: enroll_vectors(other, late, f"late {other.revision}"))
        return assignments

    monkeypatch.setattr(cluster_module, "load_assignments", load_then_enroll)
    cluster(clustered)
    monkeypatch.undo()
    assert groups(clustered) >= {frozenset(GREEN), frozenset(BLUE)}


def test_a_migration_is_not_begun_from_a_model_that_the_gallery_has_no_more(
    album: Store, embedder: Embedder, other_embedder: Embedder, pets, monkeypatch: pytest.MonkeyPatch
):
    enroll(album, embedder, pets[:3])
    other = Space.from_model(other_embedder)

    def migrate_elsewhere() -> None:
        elsewhere(album, lambda second: migrate.migrate(second, other_embedder))

    change_before_write(monkeypatch, migrate, "_begin_migration", migrate_elsewhere)
    with pytest.raises(GalleryBusy, match="to another model meanwhile"):
        migrate.migrate(album, embedder)
    assert album.space == other


# --- what a user saw --------------------------------------------------------------------------------------------------


def refusal(gallery: Store, change: Callable[[Store], object], number: int = 1, **options) -> str:
    """Return why a correction of an identity is refused after a change by another program; "" if it is not."""
    state = read_states(gallery, [number])[number]
    elsewhere(gallery, change)
    try:
        check_states(gallery, [state], **options)
    except Contradiction as error:
        return str(error)
    return ""


def test_the_refusal_names_the_merge_and_its_time(clustered: Store):
    corrections.name_identity(clustered, 2, "Mia")
    message = refusal(clustered, lambda other: corrections.merge(other, 2, [1]))
    time = datetime.fromisoformat(decisions(clustered, 1)[0].decided_at).astimezone()
    assert message == (
        f"#1 was merged into Mia at {time:%H:%M} by another program or in another window; reload and decide again"
    )


@pytest.mark.parametrize(
    ("change", "beginning"),
    [
        (lambda other: corrections.name_identity(other, 1, "Tom"), "Tom was renamed at "),
        (lambda other: corrections.split(other, [1]), "#1 was changed at "),
        (lambda other: corrections.move(other, [4], 1), "#1 was changed at "),
        (lambda other: corrections.merge(other, 1, [3]), "#1 was merged at "),
        (delete_first_face, "#1 was changed"),
        (lambda other: forget_identity(other, 1), "#1 does not exist any more: it was dissolved, or a change of it"),
        (undo, "#1 does not exist any more: it was dissolved, or a change of it was undone"),
        (lambda other: corrections.move(other, [1, 2, 3], 2), "#1 was changed at "),
    ],
)
def test_a_change_of_the_identity_is_refused_with_its_cause(clustered: Store, change: Callable, beginning: str):
    assert refusal(clustered, change).startswith(beginning)


def test_changes_of_others_and_new_faces_refuse_nothing(clustered: Store):
    def change(other: Store) -> None:
        corrections.name_identity(other, 2, "Tom")
        corrections.merge(other, 2, [3])
        corrections.confirm(other, [1])
        enroll_vectors(other, draw_individuals([2, 2], seed=4), "late")
        cluster(other)

    assert refusal(clustered, change) == ""

    def note(other: Store, text: str = "new") -> None:
        Gallery(other).set_attributes(1, {"note": text})

    assert refusal(clustered, note) == ""
    note(clustered, "before")
    message = refusal(clustered, note, attributes=True)
    assert message.startswith("#1 was changed at "), "it counts where the attributes are corrected"


def test_faces_of_another_identity_than_the_one_shown_are_refused(clustered: Store):
    states = read_states(clustered, [1, None])
    check_identity_of_faces(clustered, [1, 2], states[1])
    with pytest.raises(Contradiction, match=r"face 1 is in #1 now: it was reassigned, or a change of it was undone"):
        check_identity_of_faces(clustered, [1], states[NO_IDENTITY])
    elsewhere(clustered, lambda other: corrections.move(other, [2], 2))
    with pytest.raises(Contradiction, match=r"face 2 is in #2 now: it was reassigned at \d\d:\d\d"):
        check_identity_of_faces(clustered, [1, 2], states[1])
    elsewhere(clustered, lambda other: corrections.reject(other, [3]))
    with pytest.raises(Contradiction, match="face 3 is unassigned now"):
        check_identity_of_faces(clustered, [3], states[1])
    elsewhere(clustered, lambda other: corrections.name_identity(other, 1, "Tom"))
    with pytest.raises(Contradiction, match="Tom was renamed"):
        check_identity_of_faces(clustered, [1], states[1])


def test_states_survive_the_way_through_a_form(clustered: Store):
    for state in read_states(clustered, [1, 2, None, 99]).values():
        assert type(state).parse(str(state)) == state
    assert read_states(clustered, [1, None, 99]).keys() == {0, 1}
