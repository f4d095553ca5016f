"""Every reader on its seeds and on all former findings. `make fuzz` looks for new ones."""

import importlib.util
from pathlib import Path

import pytest

from fuzzing.__main__ import fuzz
from fuzzing.catalog import READERS
from fuzzing.regressions import regressions
from fuzzing.sandbox import Sandbox
from support.tiers import all_exhaustive_but

BY_PROCESS = ("import",)  # each input takes a second
needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this Python or system"
)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return Sandbox(tmp_path_factory.getbasetemp(), starts_processes=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", all_exhaustive_but(READERS.keys() - {"request", *BY_PROCESS}, READERS))
def test_reader_survives_seeds_and_former_findings(
    name: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = READERS[name]
    read = reader.prepare(tmp_path)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for data in (*reader.seeds(), *regressions().get(name, [])):
        finding = sandbox.run(read, data)
        assert finding is None, f"{finding}: {data[:200]!r}"


def test_seeds_are_accepted(tmp_path: Path) -> None:
    """Else the fuzzer would begin with what is refused at once."""
    for name in ("photo-png", "xmp", "attributes", "idx", "tar", "tar-index", "parquet", "recipe", "results"):
        folder = tmp_path / name
        folder.mkdir()
        read = READERS[name].prepare(folder)
        for seed in READERS[name].seeds():
            read(seed)


def test_sandbox_reports_what_readers_must_not_do(sandbox: Sandbox, tmp_path: Path) -> None:
    def fail(_: bytes) -> None:
        raise KeyError("x")

    assert sandbox.run(lambda _: None, b"") is None
    finding = sandbox.run(fail, b"")
    assert finding is not None
    assert finding.cause == "KeyError in the reader"
    (tmp_path / "inside").write_bytes(b"")
    assert sandbox.run(lambda _: (tmp_path / "inside").read_bytes(), b"") is None
    for outside in (lambda _: Path("/etc/passwd").read_bytes(), lambda _: Path("/var/outside").write_bytes(b"")):
        finding = sandbox.run(outside, b"")
        assert finding is not None
        assert finding.cause.startswith("Forbidden in the reader open /")


@needs_atheris
@pytest.mark.exhaustive
@pytest.mark.slow
def test_fuzzer_reaches_the_code_of_a_reader(tmp_path: Path) -> None:
    outcome = fuzz("pairs", tmp_path, seconds=5)
    assert outcome.findings == []
    assert outcome.executions > 100
    assert outcome.coverage > 10
