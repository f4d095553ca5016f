"""`familiar augment`: preview a recipe's augmentation."""

from pathlib import Path

import click

from familiar.cli.console import list_skipped, print_json
from familiar.cli.options import (
    FILE,
    data_argument,
    data_spec,
    json_option,
    limit_options,
    max_megapixels_option,
    recipe_options,
    recipe_with,
    require_parent_folder,
)


@click.command()
@data_argument
@recipe_options
@click.option(
    "--output", "-o", default=Path("augment.png"), type=FILE, show_default=True, help="The image file to write."
)
@click.option(
    "--photos",
    default=2,
    show_default=True,
    type=click.IntRange(1, 8),
    help="Number of photos, each of a different identity.",
)
@limit_options
@max_megapixels_option
@json_option
def augment(
    data: tuple[str, ...],
    recipe: str,
    settings: tuple[str, ...],
    function: str | None,
    output: Path,
    photos: int,
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    exclude: tuple[str, ...],
    as_json: bool,
) -> None:
    """Preview how training augments photos.

    Writes one image: each augmentation of a recipe at three strengths, then random combinations.

    \b
    Example:
      familiar augment photos/cats --recipe pet-mobile --output augment.png
    """
    from dataclasses import asdict, replace

    import numpy as np

    from familiar.core.errors import UnreadablePhoto
    from familiar.core.types import Crop, Photo
    from familiar.datasets.folders import open_photo
    from familiar.detection.faces import crop_photo
    from familiar.loading.augment.preview import augmentation_sheet
    from familiar.photos.decoding import save_photo

    require_parent_folder(output)
    chosen = recipe_with(recipe, settings, function)
    # The normalization does not show in the preview, so any will do.
    preprocessing = replace(chosen.input, normalization="symmetric").training_preprocessing()
    table = data_spec(data, identities, max_identities, max_photos, exclude).read()
    crops: list[Crop] = []
    skipped: list[UnreadablePhoto] = []
    for row in np.unique(table.labels, return_index=True)[1]:
        try:
            crops.append(crop_photo(table.photos[row], preprocessing, open_photo=open_photo))
        except UnreadablePhoto as error:
            skipped.append(error)
        if len(crops) == photos:
            break
    if not crops:
        raise UnreadablePhoto(f"no identity's first photo can be read; the first: {skipped[0]}")
    pictures = [crop.rgb_u8 for crop in crops]
    sheet = augmentation_sheet(pictures, chosen.augmentation, chosen.seed, chosen.input.size_px)
    save_photo(Photo(sheet, output, (sheet.shape[1], sheet.shape[0])), output)
    if as_json:
        names = [str(crop.source) for crop in crops]
        print_json(
            {
                "output": output,
                "photos": names,
                "skipped": [str(error) for error in skipped],
                "augmentation": asdict(chosen.augmentation),
            }
        )
        return
    list_skipped(skipped)
    click.echo(f"{output}: augmentation of {chosen.name} on {len(crops)} photos of {chosen.input.size_px} px")
