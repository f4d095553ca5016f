"""Screenshots of docs/how-to/my-first-album.md: drawn pets are dropped, named, asked about and searched for.

serve.py first_album FOLDER
"""

import argparse
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from familiar import Gallery
from familiar.datasets.synthetic import SyntheticSource
from familiar.photos.decoding import save_photo
from serving.pictures import PHONE, open_page, save_sheet
from serving.server import serving

NAMES = {"cats": ("Mia", "Tom", "Luna", "Simba"), "dogs": ("Rex", "Bella", "Balu")}
PHOTOS = 8  # of each pet, the last of which is the new one
DIFFICULTY = 0.5
WINDOW = (1_280, 860)
MAX_WAIT_MS = 300_000


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py first_album", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    pictures = parser.parse_args(options).folder
    with tempfile.TemporaryDirectory() as root, sync_playwright() as playwright:
        photos = _draw_pets(Path(root, "photos"))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        with serving(Path(root, "album")) as server:
            page = open_page(browser, WINDOW, "light")
            page.goto(server.url)
            page.locator("[data-drop] input[type=file]").first.set_input_files(
                [photo for pet in photos.values() for photo in pet[:-1]]
            )
            page.get_by_role("heading", name="Done").wait_for(timeout=MAX_WAIT_MS)
            save_sheet(pictures / "album-photos.png", _shot(page))
            page.goto(f"{server.url}/questions")
            save_sheet(pictures / "album-question.png", _shot(page))

            _name_all(Path(root, "album"))
            page.goto(f"{server.url}/individuals")
            save_sheet(pictures / "album.png", _shot(page))

            phone = open_page(browser, PHONE, "light")
            phone.goto(f"{server.url}/search")
            phone.locator("input[type=file]").first.set_input_files(photos["Mia"][-1])
            phone.wait_for_url("**/search")
            search = _shot(phone)
            phone.goto(f"{server.url}/individuals")
            save_sheet(pictures / "album-phone.png", search, _shot(phone))


def _draw_pets(folder: Path) -> dict[str, list[Path]]:
    """Draw the photos of each pet, by its name."""
    photos: dict[str, list[Path]] = {}
    for species, names in NAMES.items():
        source = SyntheticSource.parse(f"synthetic:{species}:{len(names)}x{PHOTOS}:seed=3:difficulty={DIFFICULTY}")
        for pet, name in enumerate(names):
            (folder / name).mkdir(parents=True)
            photos[name] = [
                save_photo(photo.draw(), folder / name / f"{name}-{index}.png")
                for index, photo in enumerate(source.photos(pet))
            ]
    return photos


def _name_all(folder: Path) -> None:
    """Give each group a name; they are numbered in the order in which the pets were dropped."""
    with Gallery.open(folder) as album:
        numbers = sorted(each.identity for each in album.identities())
        for number, name in zip(numbers, (name for names in NAMES.values() for name in names), strict=True):
            album.name(number, name)


def _shot(page: Page) -> Image.Image:
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    return Image.open(io.BytesIO(page.screenshot(caret="initial"))).convert("RGB")
