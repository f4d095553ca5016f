"""A folder as another user's."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Everybody may read in it, and only its owner write; pytest keeps its folders to their owner."""
    folder = tmp_path
    while folder != folder.parent and folder != Path(tempfile.gettempdir()):
        folder.chmod(0o755)
        folder = folder.parent
    return tmp_path
