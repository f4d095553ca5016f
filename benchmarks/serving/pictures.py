"""Screenshots of docs/how-to/serve.md: drawn pets in the pages, on a desktop and on a phone, in both themes.

serve.py pictures MODEL FOLDER
"""

import argparse
import io
import shutil
import tempfile
from pathlib import Path

from collection.pictures import ALBUM, draw_album
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from familiar.core.files import write_atomically
from familiar.datasets.synthetic import SyntheticSource
from familiar.embedding.embedder import Embedder
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import GalleryDatabase, Space
from familiar.gallery.editing.corrections import name_identity
from familiar.gallery.enrollment.enroll import enroll
from familiar.photos.decoding import find_photos, save_photo
from serving.server import serving

DESKTOP, PHONE = (1_280, 800), (390, 844)
NAMES = ("Mia", "Tom", "Birba")
GAP_PX = 24


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py pictures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args(options)
    embedder = Embedder(arguments.model)
    with tempfile.TemporaryDirectory() as root:
        photos, folder = draw_album(Path(root, "photos")), Path(root, "album")
        with GalleryDatabase.create(folder, Space.from_metadata(embedder.metadata)) as gallery:
            enroll(gallery, embedder, find_photos([photos]))
            cluster(gallery)
            for number, name in enumerate(NAMES, 1):
                name_identity(gallery, number, name)
        first, second = _more_photos(Path(root))
        with serving(folder, "--model", arguments.model) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))

            def shot(size: tuple[int, int], scheme: str, path: str, *chosen: Path) -> Image.Image:
                page = _page(browser, size, scheme)
                page.goto(server.url + path)
                for field, photo in zip(page.locator("input[type=file]").all(), chosen, strict=False):
                    field.set_input_files(photo)
                page.wait_for_load_state("networkidle")
                page.wait_for_timeout(500)
                return Image.open(io.BytesIO(page.screenshot(caret="initial"))).convert("RGB")

            _save(arguments.folder / "serve-individuals.png", shot(DESKTOP, "light", "/individuals?tab=unnamed"))
            _save(arguments.folder / "serve-questions.png", shot(DESKTOP, "dark", "/questions"))
            _save(
                arguments.folder / "serve-phone.png",
                shot(PHONE, "light", "/compare", first, second),
                shot(PHONE, "dark", "/individuals/1"),
                shot(PHONE, "light", "/search", first),
            )


def _more_photos(folder: Path) -> tuple[Path, Path]:
    """Draw two more photos of the first cat."""
    source = SyntheticSource.parse(ALBUM.replace("x6", "x8"))
    first, second = [save_photo(photo.draw(), folder / f"{index}.png") for index, photo in enumerate(source.photos(0))][
        -2:
    ]
    return first, second


def _page(browser: Browser, size: tuple[int, int], scheme: str) -> Page:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        has_touch=size == PHONE,
    )
    return context.new_page()


def _save(path: Path, *pictures: Image.Image) -> None:
    """Save screenshots side by side, with a palette: a tenth of the bytes."""
    width = sum(picture.width for picture in pictures) + GAP_PX * (len(pictures) - 1)
    sheet = Image.new("RGB", (width, max(picture.height for picture in pictures)), "#888888")
    offset = 0
    for picture in pictures:
        sheet.paste(picture, (offset, 0))
        offset += picture.width + GAP_PX
    content = io.BytesIO()
    sheet.quantize(255).save(content, "PNG", optimize=True)
    write_atomically(path, content.getvalue())
