"""Watching a folder step by step: what is enrolled, followed, noted and reported."""

import os
import shutil
from pathlib import Path

import pytest

from familiar.core.errors import FamiliarError, GalleryBusy
from familiar.core.gallery_types import ClusterResult
from familiar.gallery import Gallery
from familiar.integrations.watch import outbox
from familiar.integrations.watch.watch import watch_lock
from support.color_album import draw_photo
from support.watched_folder import SETTLE_SECONDS, WatchedFolder, replay, unique


@pytest.fixture
def watched(tmp_path: Path, mean_color_bundle: Path) -> WatchedFolder:
    return WatchedFolder(tmp_path, mean_color_bundle)


def test_enrolls_a_photo_once_its_size_is_stable(watched: WatchedFolder):
    whole = draw_photo(watched.photos.parent / "whole.png", "red").read_bytes()
    watched.write("a.png", whole[:100])
    watched.step()
    watched.step(SETTLE_SECONDS / 2)
    watched.write("a.png", whole)  # the copy goes on
    watched.step(SETTLE_SECONDS / 2 + 0.1)
    assert watched.reported() == []
    watched.step(SETTLE_SECONDS + 0.1)
    assert watched.reported() == [("enrolled", "a.png")]
    assert watched.gallery.notes(outbox.EVENTS) == [], "what was delivered is deleted"


@pytest.mark.parametrize("name", ["a.png.part", "a.jpg.crdownload", ".a.png", ".hidden/a.png", "a.txt", "a"])
def test_half_copied_and_hidden_files_are_no_photos(watched: WatchedFolder, name: str):
    watched.draw("a.png", "red").rename(watched.photos.parent / "drawn.png")
    watched.write(name, (watched.photos.parent / "drawn.png").read_bytes())
    watched.settle()
    assert watched.reported() == []


def test_event_of_a_new_photo_shows_who_is_in_it(watched: WatchedFolder):
    watched.draw("stranger.png", "green")
    watched.settle()
    (face,) = watched.events[-1]["faces"]
    assert [face[key] for key in ("identity", "name", "probability", "new_identity")] == [None, None, None, False]
    watched.events.clear()
    for shade in range(3):
        watched.draw(f"{shade}.png", "red", shade=shade)
    watched.settle()
    first, *_ = (event for event in watched.events if event["event"] == "enrolled")
    (face,) = first["faces"]
    assert [face[key] for key in ("face", "box_xyxy_px", "identity", "name")] == [2, [0, 0, 32, 32], 1, None]
    assert face["probability"] is not None
    assert face["new_identity"]
    watched.gallery.name(1, "Rosa")
    watched.draw("later.png", "red", shade=5)
    watched.settle()
    (later,) = watched.events[-1]["faces"]
    assert (later["identity"], later["name"], later["new_identity"]) == (1, "Rosa", False)


def test_identities_from_before_the_first_watch_are_not_new(watched: WatchedFolder):
    for shade in range(2):
        watched.draw(f"{shade}.png", "red", shade=shade)
    watched.settle()
    watched.gallery.delete_notes(note.number for note in watched.gallery.notes(outbox.STATE))
    watched.restart()
    watched.draw("later.png", "red", shade=5)
    watched.settle()
    assert not watched.events[-1]["faces"][0]["new_identity"]


def test_events_tell_that_a_photo_was_moved_edited_replaced_deleted_and_put_back(watched: WatchedFolder):
    watched.draw("stays.png", "green")
    path = watched.draw("a.png", "red")
    watched.settle()
    watched.take_reported()
    moved = path.rename(watched.photos / "b.png")
    watched.settle()
    (move,) = watched.events
    assert (move["event"], move["path"], move["previous_path"]) == ("moved", str(moved), str(path))
    content = watched.draw("b.png", "red", shade=3).read_bytes()
    watched.settle()
    edit = watched.events[-1]
    assert (edit["event"], edit["replaces"], len(edit["faces"])) == ("edited", [move["photo"]], 1)
    watched.events.clear()
    watched.draw("b.png", "blue")
    watched.settle()
    assert watched.take_reported() == [("enrolled", "b.png"), ("missing", "b.png")]
    blue, modified_ns = moved.read_bytes(), moved.stat().st_mtime_ns
    moved.unlink()
    watched.settle()
    watched.restart()
    watched.settle()
    assert watched.take_reported() == [("missing", "b.png")], "once"
    assert len(outbox.missing_photos(watched.gallery)) == 2
    assert watched.gallery.counts().faces == 3, "their faces stay"
    moved.write_bytes(blue)
    os.utime(moved, ns=(modified_ns, modified_ns))
    watched.write("c.png", content)
    watched.settle()
    assert sorted(watched.take_reported()) == [("returned", "b.png"), ("returned", "c.png")]


def test_moved_photo_that_has_not_settled_is_not_missing(watched: WatchedFolder):
    path = watched.draw("a.png", "red")
    watched.draw("stays.png", "green")
    watched.settle()
    watched.take_reported()
    moved = path.rename(watched.photos / "b.png")
    watched.watch._next_scan = watched.seconds
    for _ in range(5):
        watched.touch(moved)
        watched.step(SETTLE_SECONDS - 0.1)
    assert watched.reported() == []
    watched.settle()
    assert watched.reported() == [("moved", "b.png")]


def test_photo_that_is_written_anew_is_not_missing_meanwhile(watched: WatchedFolder):
    content = watched.draw("a.png", "red").read_bytes()
    watched.draw("stays.png", "green")
    watched.settle()
    watched.take_reported()
    for length in range(5):
        watched.write("a.png", content[:length])
        watched.watch._next_scan = watched.seconds
        watched.step(SETTLE_SECONDS - 0.1)
    assert watched.reported() == []


@pytest.mark.parametrize("empty", [True, False])
def test_unmounted_folder_is_reported_once_and_its_photos_are_not_missing(watched: WatchedFolder, empty: bool):
    watched.draw("a.png", "red")
    watched.settle()
    watched.take_reported()
    elsewhere = watched.photos.with_name("elsewhere")
    watched.photos.rename(elsewhere)
    if empty:
        watched.photos.mkdir()
    for _ in range(2):
        watched.settle()
    assert watched.take_reported() == [("skipped", ".")]
    watched.restart()
    watched.settle()
    assert watched.take_reported() == [("skipped", ".")], "a new run says so, too"
    if empty:
        watched.photos.rmdir()
    elsewhere.rename(watched.photos)
    watched.settle()
    assert watched.take_reported() == []
    watched.photos.rename(elsewhere)
    watched.settle()
    assert watched.take_reported() == [("skipped", ".")]


def test_folder_unmounted_between_search_and_note_is_not_a_deletion(
    watched: WatchedFolder, monkeypatch: pytest.MonkeyPatch
):
    watched.draw("b.png", "green")
    watched.draw("sub/a.png", "red")
    watched.settle()
    watched.take_reported()
    (watched.photos / "sub").rename(watched.photos.with_name("sub"))
    stat = os.stat

    def offline(path: str, **options: object) -> os.stat_result:
        if str(path).endswith("a.png"):
            raise OSError(116, "Stale file handle")
        return stat(path, **options)  # pyright: ignore

    monkeypatch.setattr(os, "stat", offline)
    watched.settle()
    assert watched.reported() == []


def test_unreadable_photo_is_reported_once_and_tried_again_when_it_changes(watched: WatchedFolder):
    watched.draw("b.png", "red")
    whole = (watched.photos / "b.png").read_bytes()
    watched.write("a.png", whole[:60])
    watched.settle()
    watched.settle()
    assert sorted(watched.take_reported()) == [("enrolled", "b.png"), ("skipped", "a.png")]
    watched.restart()
    watched.settle()
    assert watched.take_reported() == [("skipped", "a.png")], "a new run tries it again"
    watched.write("a.png", whole[:70])
    watched.settle()
    assert watched.take_reported() == [("skipped", "a.png")]
    watched.draw("a.png", "green")
    watched.settle()
    assert watched.take_reported() == [("enrolled", "a.png")]


def test_photo_that_was_overwritten_with_garbage_is_missing(watched: WatchedFolder):
    path = watched.draw("a.png", "red")
    watched.draw("b.png", "green")
    watched.settle()
    watched.take_reported()
    content = path.read_bytes()
    watched.write("a.png", b"no photo")
    watched.settle()
    watched.settle()
    assert watched.take_reported() == [("skipped", "a.png"), ("missing", "a.png")]
    watched.write("a.png", content)
    watched.settle()
    assert watched.take_reported() == [("returned", "a.png")]
    shutil.copyfile(path, watched.photos / "copy.png")
    watched.settle()
    watched.write("a.png", b"no photo")
    watched.settle()
    assert watched.take_reported() == [("skipped", "a.png"), ("moved", "copy.png")]


def test_links_pipes_and_strange_names_never_end_the_watch(watched: WatchedFolder):
    watched.draw("two\nlines.png", "red")
    latin = os.fsencode(watched.photos) + b"/caf\xe9.png"
    draw_photo(watched.photos / "plain.png", "green").rename(os.fsdecode(latin))
    (watched.photos / "loop").symlink_to(watched.photos)
    (watched.photos / "loop.png").symlink_to(watched.photos / "loop.png")
    (watched.photos / "broken.png").symlink_to(watched.photos / "nothing.png")
    os.mkfifo(watched.photos / "pipe.png")
    watched.settle()
    expected = [("enrolled", "caf\udce9.png"), ("enrolled", "two\nlines.png"), ("skipped", "loop.png")]
    assert sorted(watched.reported()) == [*expected, ("skipped", "pipe.png")]
    lines = [outbox.to_json_line(event) for event in watched.events]
    assert not any(b"\n" in line for line in lines)
    assert all(line.decode() for line in lines)


def test_gallery_within_the_watched_folder_is_not_searched(tmp_path: Path, mean_color_bundle: Path):
    watched = WatchedFolder(tmp_path, mean_color_bundle)
    uploads = watched.gallery.folder / "photos"
    uploads.mkdir()
    draw_photo(uploads / "uploaded.png", "red")
    watched.watch._disk.folders = (str(tmp_path),)
    watched.settle()
    assert watched.reported() == []


def test_second_watch_of_a_gallery_is_refused(tmp_path: Path):
    with watch_lock(tmp_path), pytest.raises(GalleryBusy, match="another familiar watch"), watch_lock(tmp_path):
        pytest.fail("there are two")
    with watch_lock(tmp_path):
        pass


def test_busy_gallery_is_waited_for(watched: WatchedFolder, monkeypatch: pytest.MonkeyPatch):
    busy = iter([True, True])

    cluster = Gallery.cluster

    def cluster_when_free(gallery: Gallery) -> ClusterResult:
        if next(busy, False):
            raise GalleryBusy("busy")
        return cluster(gallery)

    monkeypatch.setattr(Gallery, "cluster", cluster_when_free)
    watched.draw("a.png", "red")
    watched.settle()
    assert watched.reported() == []
    watched.settle()
    assert watched.reported() == [("enrolled", "a.png")]
    assert len(watched.notes) == 1


def test_watch_killed_between_enrollment_and_report_reports_the_same_ids(
    watched: WatchedFolder, monkeypatch: pytest.MonkeyPatch
):
    watched.draw("a.png", "red")
    watched.draw("b.png", "red", shade=3)
    watched.step()
    with monkeypatch.context() as patch:
        patch.setattr(Gallery, "cluster", killed)
        with pytest.raises(KeyboardInterrupt):
            watched.step(SETTLE_SECONDS + 0.1)
    assert watched.reported() == []
    watched.restart()
    watched.on_event = killed
    with pytest.raises(KeyboardInterrupt):
        watched.settle()
    watched.on_event = lambda _: None
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "mark_delivered", killed)
        with pytest.raises(KeyboardInterrupt):
            watched.settle()
    before = list(watched.events)
    watched.restart()
    watched.settle()
    assert watched.events[: len(before)] == before
    numbers = [int(event["id"].rpartition("-")[2]) for event in unique(watched.events)]
    assert numbers == sorted({*numbers})
    assert watched.reported() == [("enrolled", "a.png"), ("enrolled", "b.png")]
    assert [face["identity"] for event in watched.events[1:3] for face in event["faces"]] == [1, 1]


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_event_of_a_photo_that_was_edited_before_the_report_is_not_lost(
    watched: WatchedFolder, monkeypatch: pytest.MonkeyPatch
):
    watched.draw("a.png", "red")
    watched.step()
    with monkeypatch.context() as patch:
        patch.setattr(Gallery, "cluster", killed)
        with pytest.raises(KeyboardInterrupt):
            watched.step(SETTLE_SECONDS + 0.1)
    watched.draw("a.png", "red", shade=2)
    watched.restart()
    watched.settle()
    assert watched.reported() == [("enrolled", "a.png"), ("edited", "a.png")]
    assert len(replay(watched.events)) == 1
    assert [[face["face"] for face in event["faces"]] for event in watched.events if "faces" in event] == [[1], [1]]


def test_events_of_forgotten_photos_leave_the_outbox(watched: WatchedFolder):
    path = watched.draw("a.png", "red")
    watched.draw("b.png", "green")
    watched.settle()
    outbox.start_delivery(watched.gallery, ["stdout", "webhook"], [])  # a webhook that takes nothing
    outbox.mark_delivered(watched.gallery, "webhook", watched.gallery.notes(outbox.EVENTS)[-1].number)
    for photo in (1, 2):
        outbox.add_event(watched.gallery, "enrolled", photo, path=f"{photo}", taken_at=None)
    outbox.complete_events(watched.gallery)
    watched.gallery.forget(photos=path)
    (event,) = (event for _, event in outbox.undelivered(watched.gallery, "webhook", 9))
    assert event["photo"] == 2


def test_outbox_is_bounded(watched: WatchedFolder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outbox, "MAX_EVENTS", 3)
    watched.step()
    outbox.start_delivery(watched.gallery, ["stdout", "webhook"], [])
    outbox.mark_delivered(watched.gallery, "webhook", watched.gallery.notes(outbox.EVENTS)[-1].number)
    for shade in range(5):
        watched.draw(f"{shade}.png", "red", shade=shade)
    watched.settle()
    assert len(outbox.undelivered(watched.gallery, "webhook", 9)) == 3
    assert "2 events dropped" in watched.notes[-1]


def test_events_of_a_restored_backup_have_other_ids(watched: WatchedFolder, tmp_path: Path):
    watched.settle()
    ids: list[str] = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        shutil.copytree(watched.gallery.folder, folder)
        with Gallery.open(folder) as copy:
            outbox.add_event(copy, "stopped")
            ids += [event["id"] for _, event in outbox.undelivered(copy, "stdout", 9)]
    assert len({*ids}) == 2
    assert len({event_id.rpartition("-")[2] for event_id in ids}) == 1


def test_unreadable_folder_is_reported_once_and_its_photos_are_not_missing(
    watched: WatchedFolder, monkeypatch: pytest.MonkeyPatch
):
    watched.draw("sub/a.png", "red")
    watched.draw("b.png", "green")
    watched.settle()
    watched.take_reported()
    scandir = os.scandir

    def denied(path: str):
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", denied)
        watched.settle()
        watched.settle()
        assert watched.take_reported() == [("skipped", "sub")]
    watched.settle()
    assert watched.take_reported() == []


def test_stop_ends_the_run_after_the_batch_and_the_next_run_goes_on(watched: WatchedFolder):
    watched.draw("a.png", "red")
    watched.draw("b.png", "green")
    watched.step()
    watched.seconds += SETTLE_SECONDS + 0.1
    watched.on_event = lambda _: watched.watch.stop()
    watched.watch.run()
    assert watched.events[-1]["event"] == "stopped"
    watched.on_event = lambda _: None
    watched.restart()
    watched.settle()
    assert sorted(kind for kind, _ in watched.reported()) == ["enrolled", "enrolled"]


def test_gallery_of_another_model_ends_the_watch(watched: WatchedFolder):
    with watched.gallery.store.write() as repository:
        repository.connection.execute("UPDATE gallery SET space = replace(space, 'mean-color', 'other')")
    watched.draw("a.png", "red")
    with pytest.raises(FamiliarError, match="migrate"):
        watched.settle()
