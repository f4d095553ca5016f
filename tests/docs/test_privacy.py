"""docs/explanation/privacy.md lists the tables and files that there are."""

from familiar.gallery.store.store import Store
from support.privacy_page import listed, unlisted_files
from support.small_gallery import SPACE


def test_page_lists_each_table_of_a_gallery_once(tmp_path):
    with Store.create(tmp_path, SPACE) as gallery, gallery.read() as repository:
        tables = repository.connection.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")
        assert unlisted_files(tmp_path, "The gallery's folder") == []
    assert sorted(listed("The tables")) == sorted(name for (name,) in tables)


def test_a_file_that_is_not_listed_is_noticed(tmp_path):
    (tmp_path / "thumbnails").mkdir()
    (tmp_path / "thumbnails" / "mia.jpg").touch()
    (tmp_path / "gallery.sqlite").touch()
    assert unlisted_files(tmp_path, "The gallery's folder") == ["thumbnails/mia.jpg"]
