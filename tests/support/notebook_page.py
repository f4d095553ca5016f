"""The executed notebook of the documentation: `python -m support.notebook_page`, run in `tests/`.

Runs `examples/notebooks/explore_an_album.ipynb` in a Jupyter kernel and an empty folder, stores its outputs in it, and
makes a page of it. Change the cells in the notebook, not in the page.
"""

import base64
import json
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebooks" / "explore_an_album.ipynb"
PAGE = ROOT / "docs" / "how-to" / "explore-in-a-notebook.md"
IMAGES = ROOT / "docs" / "images"
_FOLDER = "/home/mia"  # shown in place of the folder that it runs in
_NOTE = (
    "<!-- Made from examples/notebooks/explore_an_album.ipynb by `python -m support.notebook_page`, run in tests/. -->"
)


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook with the outputs of its cells; an error in one of them is raised."""
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    search_path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    with TemporaryDirectory() as folder, TemporaryDirectory() as sockets:
        node = nbformat.reads(json.dumps(notebook), as_version=4)
        client = NotebookClient(
            node,
            timeout=300,
            startup_timeout=60,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            # No port that others could connect to.
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
        )
        client.execute(env=os.environ | {"PYTHONPATH": search_path})
        text: str = nbformat.writes(node)
    return _without_noise(json.loads(text.replace(folder, _FOLDER)))


def page(notebook: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Return the page of an executed notebook, and its pictures by the names of their files."""
    parts, pictures = [""], dict[str, bytes]()
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_shown(output, pictures) for output in cell["outputs"]]
    title, *others = parts[1:]
    heading, _, introduction = title.partition("\n")
    return "\n\n".join([f"{heading}\n\n{_NOTE}", introduction.strip(), *others]) + "\n", pictures


def read() -> dict[str, Any]:
    """Return the notebook."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def write(notebook: dict[str, Any]) -> None:
    """Write the notebook, its page, and the pictures of the page."""
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text, pictures = page(notebook)
    PAGE.write_text(text, encoding="utf-8")
    for name, png in pictures.items():
        (IMAGES / name).write_bytes(png)


def _shown(output: dict[str, Any], pictures: dict[str, bytes]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    if "image/png" in data:
        name = f"{PAGE.stem}-{len(pictures) + 1}.png"
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        return f"![A chart that the cell above draws](../images/{name})"
    if "text/html" in data:
        html = re.sub(r"<style scoped>.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)  # of pandas
        html = html.replace('<table border="1" class="dataframe">', "<table>")  # which the site's style is for
        return re.sub(r">\s*\n\s*<", "><", html.strip())  # a blank line could end it
    return f"```text\n{''.join(data['text/plain'])}\n```"


def _without_noise(notebook: dict[str, Any]) -> dict[str, Any]:
    """Remove what differs from run to run and from machine to machine."""
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        for output in cell.get("outputs", ()):
            if "text/html" in output.get("data", {}):
                output["data"].pop("text/plain", None)
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


if __name__ == "__main__":
    write(execute(read()))
