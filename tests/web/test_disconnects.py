"""Uploads that are cut off at any byte leave nothing behind, and can be repeated."""

import socket
import tempfile
import threading
from pathlib import Path

import pytest
import uvicorn
from serving.disconnects import Uploads, find_problems, upload_and_disconnect, wait_until_enrolled

from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings
from support.middleware import until
from support.tiers import small_and_exhaustive


def open_files() -> int:
    """Count the files that this process has open (Linux; elsewhere 0)."""
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.is_dir() else 0


@pytest.mark.slow
@pytest.mark.parametrize("count", small_and_exhaustive(100, 500))
def test_cut_uploads_leave_nothing_behind(
    tmp_path: Path, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    settings = Settings(gallery=tmp_path / "album", models=(mean_color_bundle,))
    config = uvicorn.Config(make_app(Service(settings)), log_config=None, ws="none")
    server, uploads = uvicorn.Server(config), Uploads()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            until(lambda: server.started)
            address = listening.getsockname()
            wait_until_enrolled(address)
            before = open_files()
            upload_and_disconnect(address, count, uploads, seed=0)
            wait_until_enrolled(address)
            until(lambda: not server.server_state.connections)
            assert find_problems(settings.gallery, uploads, tmp_path / "temporary") == []
            # SQLite closes the descriptors of closed connections later, when no other connection holds a lock.
            until(lambda: open_files() <= before + 5)
        finally:
            server.should_exit = True
            thread.join(60)
    assert uploads.counts["cut"] > count / 2
    assert uploads.acknowledged
