"""`familiar gallery index`: Milvus for a gallery, and back."""

from pathlib import Path

import pytest

from familiar.gallery.store.external_index import read_external_index
from familiar.gallery.store.store import Store
from support.cli import Familiar
from support.small_gallery import SPACE, draw_individuals, enroll_vectors

pytest.importorskip("familiar.integrations", reason="the index is an integration")
pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of gRPC and FAISS


def test_index_is_built_kept_equal_and_removed(familiar: Familiar, tmp_path: Path):
    album, milvus = tmp_path / "album", f"milvus:{tmp_path / 'faces.db'}"
    with Store.create(album, SPACE) as gallery:
        enroll_vectors(gallery, draw_individuals([20, 20]), prefix=str(tmp_path / "photo"))
    built = familiar("gallery", "index", album, "--index", milvus)
    assert (built.code, built.out) == (0, f"{album}: 40 faces in Milvus, 40 written, 0 removed\n"), built.err
    assert familiar("gallery", "check", album).code == 0
    forgotten = familiar("gallery", "forget", album, "--photo", tmp_path / "photo 3.jpg", "--yes")
    assert forgotten.code == 0, forgotten.err
    assert '"written": 0' in familiar("gallery", "index", album, "--json").out
    local = familiar("gallery", "index", album, "--index", "local")
    assert local.out == f"{album}: no index outside its folder\n"
    wrong = familiar("gallery", "index", album, "--index", "milvus:http://127.0.0.1:1")
    assert (wrong.code, read_external_index(album)) == (1, None)
    assert "127.0.0.1:1" in wrong.err
