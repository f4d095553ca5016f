"""Run tests of the core without the integrations: `cd tests && python -m support.core_only [PYTEST ARGUMENTS]`.

The package and its tests are copied without `integrations`, and the tests of gallery, web and commands run there.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTED = ("tests/gallery", "tests/web", "tests/cli", "tests/client")


def main() -> int:
    """Copy, test, and return pytest's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("integrations", "__pycache__")
        for part in ("src", "tests", "benchmarks", "docs", "examples"):
            shutil.copytree(ROOT / part, Path(folder, part), ignore=ignored)
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, folder)
        environment = os.environ | {"PYTHONPATH": str(Path(folder, "src"))}
        command = [sys.executable, "-m", "pytest", *(sys.argv[1:] or TESTED)]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
