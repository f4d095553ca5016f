"""Screenshots of the web pages for the documentation: drawn pets, on a desktop and on a phone, in both themes.

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
from familiar.gallery import Gallery
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits.corrections import name_identity
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets.register import enter_pet
from familiar.integrations.lost_pets.reports import Report
from familiar.photos.decoding import save_photo
from familiar.photos.listing import find_photos
from serving.server import serving

DESKTOP, PHONE = (1_280, 800), (390, 844)
DESK = (1_280, 1_000)
NAMES = ("Mia", "Tom", "Birba")
LOST = {  # the lost pets of the desk, which are drawn cats and dogs in turn
    "Luna": Report("lost", "cat", "Elm Street 4", "2026-05-01", "555-0101", "red collar"),
    "Rex": Report("lost", "dog", "Harbor", "2026-05-11", "555-0102", ""),
    "Minka": Report("lost", "cat", "Old Town", "2026-05-06", "555-0103", "shy"),
    "Bella": Report("lost", "dog", "Elm Street 9", "2026-04-28", "555-0104", "chipped"),
    "Simba": Report("lost", "cat", "Mill Lane", "2026-05-14", "555-0105", ""),
}
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
        with Store.create(folder, Space.from_metadata(embedder.metadata)) as gallery:
            enroll(gallery, embedder, find_photos([photos]))
            cluster(gallery)
            for number, name in enumerate(NAMES, 1):
                name_identity(gallery, number, name)
        first, second = _more_photos(Path(root))
        with serving(folder, "--model", arguments.model) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))

            def shot(size: tuple[int, int], scheme: str, path: str, *chosen: Path) -> Image.Image:
                page = open_page(browser, size, scheme)
                page.goto(server.url + path)
                for field, photo in zip(page.locator("input[type=file]").all(), chosen, strict=False):
                    field.set_input_files(photo)
                page.wait_for_load_state("networkidle")
                page.wait_for_timeout(500)
                return Image.open(io.BytesIO(page.screenshot(caret="initial"))).convert("RGB")

            save_sheet(arguments.folder / "serve-questions.png", shot(DESKTOP, "dark", "/questions"))
            save_sheet(
                arguments.folder / "serve-phone.png",
                shot(PHONE, "light", "/compare", first, second),
                shot(PHONE, "dark", "/individuals/1"),
                shot(PHONE, "light", "/search", first),
            )
        missing, stray = _draw_desk(Path(root), embedder)
        with serving(missing, "--model", arguments.model) as server, sync_playwright() as playwright:
            page = open_page(playwright.chromium.launch(executable_path=shutil.which("chromium")), DESK, "light")
            page.goto(f"{server.url}/desk/{stray}?species=")
            page.wait_for_load_state("networkidle")
            picture = Image.open(io.BytesIO(page.screenshot(caret="initial"))).convert("RGB")
            save_sheet(arguments.folder / "desk.png", picture)


def _draw_desk(root: Path, embedder: Embedder) -> tuple[Path, int]:
    """Make a register of lost pets and one found pet, which is Luna; return the gallery and its number."""
    folder = root / "missing"
    with Store.create(folder, Space.from_metadata(embedder.metadata)) as gallery:
        for index, (name, report) in enumerate(LOST.items()):
            species, individual = ("cats", "dogs")[index % 2], index // 2
            _enter(gallery, embedder, root / name, SyntheticSource.parse(f"synthetic:{species}:9x5"), individual, 3)
            pets = Gallery(gallery)
            enter_pet(pets, pets.photos_with_content(find_photos([root / name])), name, report)
        stray = Report("found", "cat", "Elm Street 17", "2026-05-03", "555-0177", "limps")
        _enter(gallery, embedder, root / "stray", SyntheticSource.parse("synthetic:cats:9x5"), 0, -2)
        pets = Gallery(gallery)
        return folder, enter_pet(pets, pets.photos_with_content(find_photos([root / "stray"])), "Stray", stray)


def _enter(
    gallery: Store, embedder: Embedder, folder: Path, source: SyntheticSource, individual: int, count: int
) -> None:
    """Draw and enroll the first photos of an individual; with a negative count, the last ones."""
    folder.mkdir()
    photos = list(source.photos(individual))
    for index, photo in enumerate(photos[:count] if count > 0 else photos[count:]):
        save_photo(photo.draw(), folder / f"{index}.png")
    enroll(gallery, embedder, find_photos([folder]))


def _more_photos(folder: Path) -> tuple[Path, Path]:
    """Draw two more photos of the first cat."""
    source = SyntheticSource.parse(ALBUM.replace("x6", "x8"))
    first, second = [save_photo(photo.draw(), folder / f"{index}.png") for index, photo in enumerate(source.photos(0))][
        -2:
    ]
    return first, second


def open_page(browser: Browser, size: tuple[int, int], scheme: str) -> Page:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        has_touch=size == PHONE,
    )
    return context.new_page()


def save_sheet(path: Path, *pictures: Image.Image) -> None:
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
