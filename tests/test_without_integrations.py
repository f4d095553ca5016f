"""The core works where `familiar.integrations` is missing; `support.core_only` runs all its tests without it."""

import subprocess
import sys

import pytest

IMPORTS = """
import sys
sys.modules["familiar.integrations"] = None  # importing it fails from now on
import familiar, familiar.cli.main, familiar.web.server
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "use",
    [
        "familiar.cli.main.familiar(['gallery', '--help'], standalone_mode=False)",
        "familiar.cli.main.familiar(['serve', '--help'], standalone_mode=False)",
        "assert not familiar.web.pages.render.HAS_DESK",
    ],
)
def test_library_commands_and_pages_can_be_used(use: str):
    done = subprocess.run([sys.executable, "-c", IMPORTS + use], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
