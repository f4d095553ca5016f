"""Flipped bits, foreign writes and lost pages are noticed; `check` says what is wrong, and `repair` keeps the rest."""

import contextlib
import hashlib
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from collection.crash_scenarios import Contents, contents, embedder

from familiar.core.errors import BadGallery, CorruptGallery, GalleryBusy
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.store.connection import DATABASE, LOG, connect
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store
from familiar.gallery.transfer.check import check
from familiar.gallery.transfer.repair import RepairResult, repair
from support.damaged_gallery import create_gallery_with_every_table, damage_table, flip, write_as_foreign_program
from support.small_gallery import draw_individuals, enroll_vectors
from support.tiers import small_and_exhaustive

SPACE = Space.from_metadata(embedder().metadata)
TABLES_OF_PEOPLE = ("faces", "photos", "identities", "assignments", "constraints", "rejections")


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("intact") / "gallery"
    create_gallery_with_every_table(folder)
    shutil.rmtree(folder / "backups")
    return folder


@pytest.fixture(scope="module")
def original(intact: Path) -> Contents:
    with Store.open(intact) as gallery:
        return contents(gallery)


@pytest.fixture
def damaged(intact: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(intact, tmp_path / "gallery"))


def problems_of(folder: Path) -> list[str]:
    """Return what `check` reports, or why the gallery cannot be opened."""
    try:
        with Store.open(folder) as gallery:
            return list(check(gallery).problems)
    except (CorruptGallery, BadGallery) as error:  # the latter where the number of the format is what is damaged
        return [str(error)]


def repaired(folder: Path, before: Contents) -> tuple[RepairResult, dict[str, set[tuple[object, ...]]]]:
    """Repair a gallery; check it; return the result, and the rows that are gone or changed."""
    try:
        result = repair(folder)
    except BadGallery:  # the row that says which model it belongs to is lost
        result = repair(folder, SPACE)
    with Store.open(folder) as gallery:
        assert check(gallery).problems == ()
        after = contents(gallery)
    return result, {
        table: lost for table in before if table != "gallery" and (lost := set(before[table]) - set(after[table]))
    }


def test_repair_of_an_intact_gallery_changes_nothing(damaged: Path, original: Contents):
    result, lost = repaired(damaged, original)
    assert (result, lost) == (RepairResult(), {})


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "flips"), small_and_exhaustive((0, 25), (None, 2_000)))  # None: unseeded
def test_every_flipped_bit_is_noticed_and_costs_at_most_its_page(
    intact: Path, original: Contents, tmp_path: Path, seed: int | None, flips: int
):
    size, rng, folder = (intact / DATABASE).stat().st_size, random.Random(seed), tmp_path / "gallery"
    outcomes: Counter[str] = Counter()
    with contextlib.closing(connect(intact / DATABASE)) as connection:
        query = "SELECT pageno FROM dbstat WHERE name = 'sqlite_schema' OR pagetype = 'internal'"
        inner_pages = {page for (page,) in connection.rows(query)}
    for _ in range(flips):
        bit = rng.randrange(8 * 4096, 8 * size)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(intact, folder)
        flip(folder / DATABASE, bit)
        assert problems_of(folder), f"bit {bit} is not noticed"
        if bit // 8 // 4096 + 1 in inner_pages:  # may cost a table: only a copy helps then
            continue
        result, lost = repaired(folder, original)
        if result.kept_in is None:
            assert not lost or result.accepted, f"bit {bit}: changed {lost}, and none is named"
            assert sum(map(len, lost.values())) <= 1, f"bit {bit}: accepted although {lost} changed"
            outcomes["accepted"] += 1
        else:
            assert not lost or result.lost, f"bit {bit}: lost {lost}, and none is named"
            assert len(lost.get("photos", ())) < 4096 / 40, f"bit {bit}"  # one page
            outcomes["recovered"] += 1
    assert outcomes["accepted"] > outcomes["recovered"] > 0, outcomes


@pytest.mark.exhaustive
def test_every_flipped_bit_of_the_header_is_noticed(intact: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    for bit in range(800):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(intact, folder)
        flip(folder / DATABASE, bit)
        assert problems_of(folder), f"bit {bit} is not noticed"


@pytest.mark.parametrize("table", ["faces", "photos", "identities", "assignments", "constraints", "gallery", "changes"])
def test_lost_page_costs_only_what_was_on_it(damaged: Path, original: Contents, table: str):
    damage_table(damaged, table)
    before = (damaged / DATABASE).read_bytes()
    assert problems_of(damaged)
    result, lost = repaired(damaged, original)
    assert result.kept_in is not None
    assert (result.kept_in / DATABASE).read_bytes() == before
    assert any(text.startswith(table) for text in result.lost), result.lost
    unharmed = {
        "faces": {"photos", "identities"},
        "photos": {"identities"},
        "identities": {*TABLES_OF_PEOPLE} - {"identities"},
        "gallery": {*TABLES_OF_PEOPLE},
        "changes": {*TABLES_OF_PEOPLE},
    }.get(table, {*TABLES_OF_PEOPLE} - {table})
    assert not lost.keys() & unharmed, lost.keys()
    repair(damaged)  # which is intact now


def test_repair_restores_the_row_of_the_gallery_only_with_its_model(damaged: Path):
    damage_table(damaged, "gallery")
    before = (damaged / DATABASE).read_bytes()
    with pytest.raises(BadGallery, match=r"name the model: familiar gallery repair .* --model MODEL"):
        repair(damaged)
    assert (damaged / DATABASE).read_bytes() == before
    repair(damaged, SPACE)
    with Store.open(damaged) as gallery:
        assert gallery.embedding_dtype == "float16"


def test_write_of_a_foreign_program_is_noticed_and_accepted(damaged: Path, original: Contents):
    write_as_foreign_program(damaged, "UPDATE identities SET name = 'Lia' WHERE id = 3")
    assert "another program has written" in " ".join(problems_of(damaged))
    result, changed = repaired(damaged, original)
    assert result.kept_in is None
    assert any(text.startswith("identities") for text in result.accepted)
    assert changed == {"identities": {row for row in original["identities"] if row[0] == 3}}


@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        ("DELETE FROM photos WHERE id = 5", "faces"),
        ("UPDATE faces SET embedding = zeroblob(32) WHERE id = 5", "faces"),
        ("UPDATE faces SET embedding = x'00' WHERE id = 5", "faces"),
        ("UPDATE gallery SET space = '{'", "gallery"),
    ],
)
def test_foreign_write_against_the_rules_is_not_accepted(damaged: Path, original: Contents, statement: str, lost: str):
    write_as_foreign_program(damaged, statement)
    assert problems_of(damaged)
    result, _ = repaired(damaged, original)
    assert result.kept_in is not None
    assert any(text.startswith(lost) for text in result.lost), result.lost


def test_trigger_that_a_foreign_program_dropped_is_there_again(damaged: Path, original: Contents):
    write_as_foreign_program(damaged, "DROP TRIGGER assignments_update")  # without it nothing could be undone
    result, lost = repaired(damaged, original)
    assert (result.accepted, lost) == ((), {})
    with Store.open(damaged) as gallery, gallery.read() as repository:
        assert repository.connection.first("SELECT 1 FROM sqlite_schema WHERE name = 'assignments_update'")


def test_repair_names_a_copy_that_has_more(damaged: Path):
    with Store.open(damaged) as gallery:
        copy = gallery.make_automatic_copy()
    damage_table(damaged, "faces")
    assert repair(damaged).backup == copy
    assert repair(damaged).backup == copy, "it still has"


@pytest.mark.usefixtures("short_waits")
def test_repair_beside_others_accepts_but_replaces_no_file(damaged: Path):
    with Store.open(damaged) as gallery:
        before = len(gallery.faces().ids)
        assert repair(damaged) == RepairResult()
        enroll_embeddings(gallery, gallery.faces().unit_rows()[:1], ["later"], SPACE.space_id)
        assert len(gallery.faces().ids) == before + 1
    damage_table(damaged, "faces")
    with Store(damaged) as _, pytest.raises(GalleryBusy, match=r"end it \(familiar serve"):
        repair(damaged)
    assert [path.name for path in damaged.iterdir() if "repaired" in path.name or "damaged" in path.name] == []


@pytest.mark.parametrize("length", [0, 100, 4096, 10 * 4096, 30 * 4096 + 7])
def test_truncated_file_is_refused_and_never_made_worse(damaged: Path, length: int):
    content = (damaged / DATABASE).read_bytes()[:length]
    (damaged / DATABASE).write_bytes(content)
    assert problems_of(damaged)
    try:
        kept_in = repair(damaged, SPACE).kept_in
    except BadGallery:
        assert (damaged / DATABASE).read_bytes() == content
    else:
        assert kept_in is not None
        assert (kept_in / DATABASE).read_bytes() == content
        assert problems_of(damaged) == []


def test_flipped_bit_in_the_log_costs_the_last_commits_and_no_others(gallery: Store, folder: Path, tmp_path: Path):
    """SQLite cannot tell it from a commit that a power cut has torn."""
    for prefix in ("first", "second", "third"):
        enroll_vectors(gallery, draw_individuals([1]), prefix)
    shutil.copytree(folder, tmp_path / "killed")
    size = (tmp_path / "killed" / LOG).stat().st_size
    for part in (3, 30):
        copy = Path(shutil.copytree(tmp_path / "killed", tmp_path / f"flipped {part}"))
        flip(copy / LOG, 8 * (size - size // part))
        with Store.open(copy) as opened:
            assert opened.faces().ids.tolist() in ([], [1], [1, 2])
            assert check(opened).problems == ()


def test_check_reports_a_damaged_index_and_lists_missing_and_changed_photos(damaged: Path, tmp_path: Path):
    there = tmp_path / "there.jpg"
    there.write_bytes(b"12345")
    with Store.open(damaged) as gallery, gallery.write() as repository:
        repository.connection.run("UPDATE photos SET size_bytes = 0")
        for number, (path, size) in enumerate(((there, 5), (there, 6), (tmp_path / "gone.jpg", 5)), 1):
            repository.connection.run(
                "UPDATE photos SET path = ?, size_bytes = ? WHERE id = ?", (bytes(path), size, number)
            )
    with Store.open(damaged) as gallery:
        result = check(gallery)
    assert (result.photos, result.faces, result.problems) == (120, 119, ())
    assert (result.missing, result.changed) == ((str(tmp_path / "gone.jpg"),), (str(there),))
    damage_table(damaged, "photos_by_path")
    assert problems_of(damaged)


def test_flipped_bit_of_an_uploaded_photo_is_noticed(damaged: Path):
    name = hashlib.sha256(b"a photo").hexdigest()
    path = damaged / UPLOADED_PHOTOS / name[:2] / f"{name}-mia.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"a photo")
    path.with_name(path.name + ".xmp").write_bytes(b"a sidecar with the names in it")
    assert problems_of(damaged) == []
    flip(path, 9)
    (problem,) = problems_of(damaged)
    assert str(path) in problem


def test_damaged_table_whose_rows_were_all_deleted_is_repaired(tmp_path: Path):
    create_gallery_with_every_table(tmp_path / "gallery")
    with Store.open(tmp_path / "gallery") as gallery, gallery.write() as repository:
        for table in ("decisions", "changes", "previous_faces"):
            repository.connection.run(f"DELETE FROM {table}")
        repository.connection.run("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'changes'")
    damage_table(tmp_path / "gallery", "changes")
    assert repair(tmp_path / "gallery").saved["faces"] == 119  # one had been deleted


def test_table_whose_definition_lost_a_column_is_listed_as_lost(damaged: Path):
    with contextlib.closing(connect(damaged / DATABASE)) as connection:
        connection.set("writable_schema", True)
        connection.run("UPDATE sqlite_schema SET sql = replace(sql, 'taken_at TEXT,', '') WHERE name = 'photos'")
    result = repair(damaged)
    assert [lost for lost in result.lost if lost.startswith("photos: all ")]


def test_name_that_is_not_utf_8_is_listed_as_lost_and_the_individual_is_kept(damaged: Path):
    write_as_foreign_program(damaged, "UPDATE identities SET name = CAST(x'4dad' AS TEXT) WHERE id = 3")
    assert "identities 1 to 24" in repair(damaged).lost  # with the others of the page, whose checksum differs
    with Store.open(damaged) as gallery:
        assert check(gallery).problems == ()
        with gallery.read() as repository:
            assert repository.connection.rows("SELECT name FROM identities WHERE id = 3") == [(None,)]
