import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from familiar.core import files
from familiar.core.errors import CannotWrite, FamiliarError
from familiar.core.vectors import normalize
from familiar.neighbors import hnsw
from familiar.neighbors.brute_force import rerank, search
from familiar.neighbors.hnsw import INDEX_FILE, STAMP_FILE, HnswIndex, Stamp, erase

pytest.importorskip("usearch", reason="usearch is not installed")


def rows(count: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    return normalize(np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32))


def built(count: int = 300, dim: int = 16, seed: int = 0) -> HnswIndex:
    return HnswIndex.build(rows(count, dim, seed), np.arange(count) * 3)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Stamp]:
    return tmp_path, built().save(tmp_path, "album 7, decision 42")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_recall_against_exact_search_is_at_least_95_percent(dtype):
    vectors, queries = rows(3000, dim=24).astype(dtype), rows(50, dim=24, seed=1)
    keys = np.random.default_rng(2).permutation(10**12 + np.arange(3000))
    index = HnswIndex.build(vectors, keys)
    assert (len(index), index.dim) == (3000, 24)
    exact_rows, exact_similarity = search(vectors, queries=queries, k=10)
    found_keys, similarity = index.search(queries, 10)
    recall = [np.isin(true, approximate).mean() for true, approximate in zip(keys[exact_rows], found_keys, strict=True)]
    assert np.mean(recall) >= 0.95  # near 1, but each build gives another graph
    assert (np.diff(similarity, axis=1) <= 0).all()
    row_of = np.argsort(keys)[np.searchsorted(np.sort(keys), found_keys)]
    reranked, exact = rerank(vectors, queries=queries, rows=row_of, k=10)
    np.testing.assert_allclose(similarity, exact, atol=1e-3)
    complete = np.array(recall) == 1
    np.testing.assert_array_equal(reranked[complete], exact_rows[complete])
    np.testing.assert_array_equal(exact[complete], exact_similarity[complete])


def test_single_query_matches_batched_queries():
    index, queries = built(), rows(4, seed=1)
    batch, batch_similarity = index.search(queries, 5)
    for row in range(4):
        single, similarity = index.search(queries[row : row + 1], 5)
        np.testing.assert_array_equal(single[0], batch[row])
        np.testing.assert_array_equal(similarity[0], batch_similarity[row])


@pytest.mark.slow
def test_search_returns_every_row_among_duplicates():
    vectors = np.repeat(rows(3), 1000, axis=0)
    hits, similarity = HnswIndex.build(vectors, np.arange(3000)).search(rows(3)[:2], 4000)
    assert np.sort(hits, axis=1).tolist() == [list(range(3000))] * 2
    np.testing.assert_allclose(similarity[:, :1000], 1, atol=2e-3)
    assert set(hits[0, :1000].tolist()) == set(range(1000))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_indexes_of_up_to_2_rows_can_be_saved_and_searched(tmp_path, count):
    stamp = built(count).save(tmp_path, "")
    reopened = HnswIndex.open(tmp_path, stamp)
    assert reopened is not None
    hits, similarity = reopened.search(rows(2, seed=1), 5)
    assert hits.shape == similarity.shape == (2, count)
    assert reopened.search(rows(0), 5)[0].shape == (0, count)


@pytest.mark.usefixtures("unchecked_signatures")
def test_rejects_vectors_and_keys_that_are_swapped():
    with pytest.raises(ValueError, match=r"vectors are rows \(n, d\) .* not \(3,\) and \(3, 16\)"):
        HnswIndex.build(np.arange(3), rows(3))


@pytest.mark.usefixtures("unchecked_signatures")
def test_rejects_a_query_that_is_no_row():
    with pytest.raises(ValueError, match=r"takes rows \(q, 16\), not \(16,\)"):
        built().search(rows(1)[0], 1)


@pytest.mark.slow
def test_rejects_invalid_keys_rows_and_queries():
    for keys in ([0, 1], [0, 1, 1], [0, -1, 2]):
        with pytest.raises(ValueError, match="keys"):
            HnswIndex.build(rows(3), np.array(keys))
    long = rows(12_000, dim=4)
    long[11_000] *= 2
    with pytest.raises(ValueError, match=r"row 10000 on: 1 of 2000 .* row 1000$"):
        HnswIndex.build(long, np.arange(12_000))
    index = built()
    with pytest.raises(ValueError, match=r"takes rows \(q, 16\), not \(1, 8\)"):
        index.search(rows(1, dim=8), 1)
    with pytest.raises(ValueError, match="unit"):
        index.search(2 * rows(1), 1)
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.search(rows(1), 0)


def test_reopened_index_returns_the_same_results(saved):
    folder, stamp = saved
    assert stamp == Stamp(300, "album 7, decision 42")
    reopened = HnswIndex.open(folder, stamp)
    assert reopened is not None
    index, queries = built(), rows(20, seed=1)
    assert (len(reopened), reopened.dim) == (len(index), index.dim)
    np.testing.assert_array_equal(reopened.search(queries, 300)[0][:, :5], index.search(queries, 300)[0][:, :5])
    again = reopened.save(folder / "copy", "w")  # a memory-mapped index can be saved too
    assert HnswIndex.open(folder / "copy", again) is not None


@pytest.mark.parametrize("stamp", [Stamp(299, "album 7, decision 42"), Stamp(300, "album 7, decision 43")])
def test_a_stale_index_is_not_opened(saved, stamp):
    assert HnswIndex.open(saved[0], stamp) is None


@pytest.mark.parametrize(("name", "value"), [("FORMAT", 2), ("version", lambda _: "1.0.0")])
def test_index_of_another_version_is_not_opened(saved, monkeypatch, name, value):
    assert HnswIndex.open(*saved) is not None
    monkeypatch.setattr(hnsw, name, value)
    assert HnswIndex.open(*saved) is None


@pytest.mark.parametrize("change", [{"count": "300"}, {"sha256": "0"}, {"sha256": 5}, {"x": 1}])
def test_index_with_an_edited_stamp_is_not_opened(saved, change):
    folder, stamp = saved
    record = json.loads((folder / STAMP_FILE).read_text())
    (folder / STAMP_FILE).write_text(json.dumps(record | change))
    assert HnswIndex.open(folder, stamp) is None
    (folder / STAMP_FILE).write_text(json.dumps(record))
    assert HnswIndex.open(folder, stamp) is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("name", [INDEX_FILE, STAMP_FILE])
def test_a_foreign_file_is_not_opened(saved, name, content):
    folder, stamp = saved
    (folder / name).write_bytes(content)
    assert HnswIndex.open(folder, stamp) is None


@pytest.mark.parametrize("name", [INDEX_FILE, STAMP_FILE])
def test_open_returns_none_for_missing_file_or_directory(saved, name):
    folder, stamp = saved
    (folder / name).unlink()
    assert HnswIndex.open(folder, stamp) is None
    (folder / name).mkdir()
    assert HnswIndex.open(folder, stamp) is None
    assert HnswIndex.open(folder / "nowhere", stamp) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_index_is_not_opened(saved, data):
    """usearch itself does not check, and could crash the process."""
    folder, stamp = saved
    path = folder / data.draw(st.sampled_from([INDEX_FILE, STAMP_FILE]))
    whole = path.read_bytes()
    position = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.sampled_from(["cut", "flip", "swap", "longer"]))
    match damage:
        case "cut":
            damaged = whole[:position]
        case "flip":
            damaged = whole[:position] + bytes([whole[position] ^ (1 << position % 8)]) + whole[position + 1 :]
        case "swap":
            damaged = whole[position:] + whole[:position]
        case _:
            damaged = whole + b"x" * (position + 1)
    path.write_bytes(damaged)
    try:
        opened = HnswIndex.open(folder, stamp)
        assert opened is None or damaged == whole
    finally:
        path.write_bytes(whole)


def test_index_that_does_not_match_the_stamp_is_not_opened(saved, tmp_path_factory):
    folder, stamp = saved
    other = tmp_path_factory.mktemp("other")
    built(seed=5).save(other, stamp.watermark)
    (folder / INDEX_FILE).write_bytes((other / INDEX_FILE).read_bytes())
    assert HnswIndex.open(folder, stamp) is None


def test_kill_between_the_two_files_leaves_no_usable_index(saved, monkeypatch):
    folder, stamp = saved
    write = hnsw.write_atomically

    def killed(path: Path, content: bytes) -> None:
        if path.name == STAMP_FILE:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(hnsw, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        built(200).save(folder, "later")
    assert HnswIndex.open(folder, stamp) is None
    assert HnswIndex.open(folder, Stamp(200, "later")) is None


def test_save_rejects_an_unwritable_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="file"):
        built(2).save(tmp_path / "file", "")


def test_erase_overwrites_the_bytes_on_disk(saved, monkeypatch):
    folder, stamp = saved
    half_written = folder / ".familiar.0123"
    half_written.write_bytes((folder / INDEX_FILE).read_bytes())
    opened = [(folder / name).open("rb") for name in (INDEX_FILE, STAMP_FILE, half_written.name)]  # to look afterwards
    lengths = [os.fstat(file.fileno()).st_size for file in opened]
    (folder / "other").write_text("stays")
    monkeypatch.setattr(files, "_ERASED_BYTES", 1000)
    erase(folder)
    assert [path.name for path in folder.iterdir()] == ["other"]
    assert (folder / "other").read_text() == "stays"
    for file, length in zip(opened, lengths, strict=True):
        with file:
            assert file.read() == bytes(length)
    assert HnswIndex.open(folder, stamp) is None
    erase(folder)
    erase(folder / "nowhere")


@pytest.mark.slow
def test_erase_during_use_does_not_crash_the_reader(saved):
    folder, stamp = saved
    program = (
        "import sys; from pathlib import Path; import numpy as np\n"
        "from familiar.neighbors.hnsw import HnswIndex, Stamp, erase\n"
        "folder = Path(sys.argv[1])\n"
        "index = HnswIndex.open(folder, Stamp(int(sys.argv[2]), sys.argv[3]))\n"
        "erase(folder)\n"
        "found, _ = index.search(np.eye(2, 16, dtype=np.float32), 5)\n"
        "assert set(found.ravel().tolist()) <= {0}, found\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(stamp.count), stamp.watermark]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_erase_reports_the_path_it_cannot_erase(tmp_path):
    (tmp_path / INDEX_FILE).mkdir()
    with pytest.raises(CannotWrite, match=INDEX_FILE):
        erase(tmp_path)


@pytest.fixture
def without_usearch(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "usearch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "usearch", None)


@pytest.mark.usefixtures("without_usearch")
def test_error_without_usearch_names_the_pip_extra():
    with pytest.raises(FamiliarError, match=r"pip install 'familiar-faces\[hnsw\]'"):
        built()


def test_without_usearch_open_returns_none_and_erase_works(saved, request):
    folder, stamp = saved
    request.getfixturevalue("without_usearch")
    assert HnswIndex.open(folder, stamp) is None
    erase(folder)


@pytest.mark.slow
def test_importing_the_module_imports_no_usearch():
    program = "import sys, familiar.neighbors.hnsw; sys.exit('usearch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
