"""`familiar quickstart`: the whole walk on drawn pets."""

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from familiar.app.commands.evaluate import show
from familiar.app.commands.train import train_and_export
from familiar.app.console import note, print_json
from familiar.app.options import FILE, json_option

TRAINING = "synthetic:cats:800x8:difficulty=0.2"
UNSEEN = "synthetic:cats:60x6:seed=1:difficulty=0.2"


@click.command()
@click.option(
    "--output", "-o", default=Path("quickstart"), type=FILE, show_default=True, help="A new folder."
)
@json_option
def quickstart(output: Path, as_json: bool) -> None:
    """See all of it on drawn pets, in minutes.

    Trains, evaluates, exports and uses an embedder; needs no photos.

    \b
    Example:
      familiar quickstart
    """
    from familiar.core.errors import BadRun
    from familiar.datasets.folders import DataSpec
    from familiar.datasets.synthetic import SyntheticSource
    from familiar.evaluation.evaluate import evaluate
    from familiar.faces.embedder import Embedder
    from familiar.faces.photo import save_photo
    from familiar.faces.verify import verify_photos
    from familiar.loading.cache import CropCache
    from familiar.recipes import recipe_named

    run, report = output / "run", output / "report"
    if output.exists() and any(output.iterdir()):
        raise BadRun(f"{output}: is not empty; name another folder with --output, or remove it")
    note(f"1/4  training on {TRAINING}: cats that do not exist, drawn as they are needed")
    recipe, licence = recipe_named("quickstart"), "drawn pets: no photo's terms bind it"
    # What is drawn once for these few minutes goes when they are over.
    with TemporaryDirectory() as cache:
        train_and_export(recipe, DataSpec((TRAINING,)), run, licence, cache=CropCache(Path(cache)))
    note(f"\n2/4  evaluating on {UNSEEN}: 60 cats it never saw")
    results = evaluate(run, DataSpec((UNSEEN,)), report)
    note("\n3/4  the same cat?")
    source = SyntheticSource.parse(UNSEEN)
    photos = {
        "tom_1.png": source.photos(0)[0],
        "tom_2.png": source.photos(0)[1],
        "kitty.png": source.photos(1)[0],
    }
    files = {name: save_photo(photo.draw(), output / name) for name, photo in photos.items()}
    embedder = Embedder(run)
    answers = {
        name: verify_photos(embedder, files["tom_1.png"], files[name]) for name in ("tom_2.png", "kitty.png")
    }
    if as_json:
        verified = {name: vars(answer) for name, answer in answers.items()}
        print_json({"run": run, "report": report / "report.html", "results": results, "verified": verified})
        return
    for name, answer in answers.items():
        verdict = "the same" if answer.same else "another"
        click.echo(f"tom_1.png and {name}: {verdict} (similarity {answer.similarity:.2f})")
    click.echo("\n4/4  how good is it?")
    show(results)
    click.echo(
        f"""
made in {output}/
  run/model.onnx        the embedder: one file, {results["model"]["size_bytes"] / 1e6:.2f} MB
  run/curves.png        how training went
  report/report.html    how good it is, with the nearest neighbours of unseen cats
  *.png                 the three photos above

now with your own photos, one folder per individual:
  familiar inspect PHOTOS
  familiar train PHOTOS --output runs/mine
  familiar verify A.jpg B.jpg --model runs/mine"""
    )
