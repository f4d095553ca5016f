"""The register as a CSV table."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadDataset
from familiar.gallery import Gallery
from familiar.gallery.edits import corrections
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets.candidates import PetFilter
from familiar.integrations.lost_pets.register import set_reports
from familiar.integrations.lost_pets.register_table import (
    COLUMNS,
    RegisterImportResult,
    export_register,
    import_register,
)
from familiar.integrations.lost_pets.reports import Report, find_pet, has_reports, list_pets
from support.small_gallery import SPACE, draw_individuals, enroll_vectors


@pytest.fixture
def pets(gallery: Store) -> Store:
    """A gallery with Luna (#1), Tom (#2) and one without a name (#3)."""
    faces = enroll_vectors(gallery, draw_individuals([2, 2, 2]))
    for start, name in ((0, "Luna"), (2, "Tom"), (4, None)):
        corrections.split(gallery, faces[start : start + 2], name)
    return gallery


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "pets.csv"


def test_table_enters_reports_as_one_decision(pets: Store, table: Path):
    table.write_text(
        "\ufeffname,status,species,place,date,contact,note\n"
        'Luna,lost,Cat,"Elm Street, 4",2026-05-01,555-0101,red collar\n'
        "#3,found,,Harbor,,,\n",
        encoding="utf-8",
    )
    before = len(decisions(pets))
    assert import_register(Gallery(pets), table) == RegisterImportResult(2, ())
    assert find_pet(Gallery(pets), 1).report == Report(
        "lost", "cat", "Elm Street, 4", "2026-05-01", "555-0101", "red collar"
    )
    assert find_pet(Gallery(pets), 3).report == Report("found", location="Harbor")
    assert len(decisions(pets)) == before + 1
    undo(pets)
    assert not has_reports(Gallery(pets))


def test_names_and_places_are_the_same_in_every_spelling(pets: Store, table: Path):
    corrections.name_identity(pets, 1, "Zo\u00eb")
    table.write_text("name,place,contact\nZoe\u0308\u3000,Se\u0300vres,\u202a555\u202c\n", encoding="utf-8")
    import_register(Gallery(pets), table)
    assert find_pet(Gallery(pets), 1).report == Report("lost", location="S\u00e8vres", contact="555")
    assert PetFilter(location="se\u0300vres").passes(find_pet(Gallery(pets), 1), Report())


def test_missing_columns_leave_fields_and_empty_cells_empty_them(pets: Store, table: Path):
    set_reports(Gallery(pets), {1: Report("found", "cat", "Elm Street", "2026-05-01", "555", "x")})
    table.write_text("note,name\n,Luna\n")
    import_register(Gallery(pets), table)
    assert find_pet(Gallery(pets), 1).report == Report("found", "cat", "Elm Street", "2026-05-01", "555")
    table.write_text("name,status\nLuna,\n")
    import_register(Gallery(pets), table)
    assert find_pet(Gallery(pets), 1).report.status == "lost"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,color\nLuna,red\n", 'line 1: the columns are .*"color" is none of them'),
        ("place\nElm\n", 'line 1: .*"name" must be there'),
        ("name,name\nLuna,Luna\n", 'line 1: .*"name" must be there, each only once'),
        ("", "line 1"),
        ('"name,place\n', "line 1"),
    ],
)
def test_table_without_the_columns_names_the_line_and_stores_nothing(
    pets: Store, table: Path, content: str, message: str
):
    table.write_text(content)
    with pytest.raises(BadDataset, match=message) as error:
        import_register(Gallery(pets), table)
    assert str(error.value).startswith(f"{table}, line ")
    assert str(error.value).endswith("nothing was stored")
    assert not has_reports(Gallery(pets))


@pytest.mark.parametrize(
    ("header", "bad", "message"),
    [
        ("name,date", "Bob,", "has no identity 'Bob'"),
        ("name,date", "Luna,1.5.2026", "a date must be written as"),
        ("name,status", "Luna,gone", "the status must be"),
        ("name,status", "#3,lost", "#3 is in line 2 too, which counts"),
        ("name,place", "Luna", "has more or fewer cells"),
        ("name,place", '"Luna"x,y', "expected after"),
    ],
)
def test_bad_row_is_listed_and_the_others_are_stored(pets: Store, table: Path, header: str, bad: str, message: str):
    table.write_text(f"{header}\n#3,\n{bad}\nTom,\n")
    result = import_register(Gallery(pets), table)
    (reason,) = result.skipped
    assert reason.startswith(f"{table}, line 3: ")
    assert message in reason
    assert result.reports == 2
    with pets.read() as repository:
        assert repository.identities.all_attributes().keys() == {2, 3}


def test_unreadable_tables_are_named(pets: Store, table: Path):
    with pytest.raises(BadDataset, match="cannot be read"):
        import_register(Gallery(pets), table)
    table.write_bytes("name\nLün".encode("latin-1"))
    with pytest.raises(BadDataset, match="save the table as CSV in UTF-8"):
        import_register(Gallery(pets), table)


@given(
    st.lists(
        st.tuples(st.sampled_from(["lost", "found", "home"]), st.text(max_size=9), st.text(max_size=9)), max_size=3
    )
)
def test_exported_register_is_read_back(tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, str, str]]):
    folder = tmp_path_factory.mktemp("register")
    with Store.create(folder / "gallery", SPACE) as gallery:
        gallery._connection.execute("PRAGMA synchronous = OFF")
        for number, (status, location, note) in enumerate(entries, 1):
            with gallery.write() as repository:
                repository.identities.create()
                repository.identities.set_name(number, f"pet {number}")
            set_reports(Gallery(gallery), {number: Report(status, location=location, note=note)})  # pyright: ignore[reportArgumentType]
        before = list_pets(Gallery(gallery))
        assert export_register(Gallery(gallery), folder / "pets.csv") == len(entries)
        assert (folder / "pets.csv").read_text("utf-8").splitlines()[0] == ",".join(COLUMNS)
        set_reports(Gallery(gallery), {pet.identity: Report("home") for pet in before})
        if entries:
            import_register(Gallery(gallery), folder / "pets.csv")
        assert list_pets(Gallery(gallery)) == before
