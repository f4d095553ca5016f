"""A folder that another user can read."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def shared_folder(tmp_path: Path) -> Path:
    """A folder that all users can read and only its owner can write; pytest makes its folders private."""
    folder = tmp_path
    while folder != folder.parent and folder != Path(tempfile.gettempdir()):
        folder.chmod(0o755)
        folder = folder.parent
    return tmp_path
