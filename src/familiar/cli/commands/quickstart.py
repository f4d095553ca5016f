"""`familiar quickstart`: the full pipeline on synthetic pets."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.commands.evaluate import print_metrics
from familiar.cli.commands.train import train_and_export
from familiar.cli.console import note, print_json
from familiar.cli.options import FILE, json_option

TRAINING = "synthetic:cats:800x8:difficulty=0.2"
UNSEEN = "synthetic:cats:60x6:seed=1:difficulty=0.2"
ALBUM_CATS = 8

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.datasets.synthetic import SyntheticSource
    from familiar.embedding.embedder import Embedder


@click.command()
@click.option("--output", "-o", default=Path("quickstart"), type=FILE, show_default=True, help="The folder to create.")
@json_option
def quickstart(output: Path, as_json: bool) -> None:
    """Run the full pipeline on synthetic data (minutes).

    Trains, evaluates and exports an embedder, compares photos with it, and clusters an album. Needs no photos.

    \b
    Example:
      familiar quickstart
    """
    from familiar.core.errors import BadRun
    from familiar.datasets.folders import DataSpec
    from familiar.datasets.synthetic import SyntheticSource
    from familiar.embedding.embedder import Embedder
    from familiar.embedding.verification import verify
    from familiar.evaluation.run_evaluation import evaluate
    from familiar.loading.cache import CropCache
    from familiar.photos.decoding import save_photo
    from familiar.recipes import recipe_named

    run, report = output / "run", output / "report"
    if output.exists() and any(output.iterdir()):
        raise BadRun(f"{output}: is not empty; name another folder with --output, or remove it")
    note(f"1/5  training on {TRAINING}: synthetic cats")
    recipe, license = recipe_named("quickstart"), "drawn pets: no photo's terms bind it"
    # A cache for this run alone.
    with TemporaryDirectory() as cache:
        train_and_export(recipe, DataSpec((TRAINING,)), run, license, cache=CropCache(Path(cache)))
    note(f"\n2/5  evaluating on {UNSEEN}: 60 cats that it was not trained on")
    results = evaluate(run, UNSEEN, report)
    note("\n3/5  the same cat?")
    source = SyntheticSource.parse(UNSEEN)
    photos = {
        "tom_1.png": source.photos(0)[0],
        "tom_2.png": source.photos(0)[1],
        "kitty.png": source.photos(1)[0],
    }
    files = {name: save_photo(photo.draw(), output / name) for name, photo in photos.items()}
    embedder = Embedder(run)
    answers = {name: verify(files["tom_1.png"], files[name], embedder) for name in ("tom_2.png", "kitty.png")}
    if not as_json:
        for name, answer in answers.items():
            verdict = {True: "the same cat", False: "different cats", None: "no verdict"}[answer.same]
            click.echo(f"tom_1.png and {name}: {verdict} (similarity {answer.similarity:.2f})")
    note("\n4/5  an album of cats that it was not trained on, clustered by identity")
    album = _album(output, source, embedder)
    if as_json:
        verified = {name: vars(answer) for name, answer in answers.items()}
        print_json(
            {
                "run": run,
                "report": report / "report.html",
                "results": results.to_json(with_replicates=False),
                "verified": verified,
                "album": album,
            }
        )
        return
    click.echo(
        f"{album['photos']} photos of {album['cats']} cats: {album['identities']} clusters, "
        f"{album['unassigned']} photos unassigned\n"
        f"the cluster of {album['named']} is named Tom now; "
        f"tom_3.png, which shows Tom and is not in the album, is taken for {album['shown']}"
    )
    click.echo("\n5/5  how good is it?")
    print_metrics(results)
    click.echo(
        f"""
made in {output}/
  run/model.onnx        the embedder: one file, {results.model.size_bytes / 1e6:.2f} MB
  run/curves.png        loss and validation accuracy by epoch
  report/report.html    evaluation on unseen cats, with their nearest neighbors
  gallery/              the identities in album/: one database
  *.png                 the photos above

what a gallery can do next:
  familiar gallery stats {output}/gallery
  familiar gallery review {output}/gallery --interactive
  familiar gallery export {output}/gallery --output {output}/sorted

now with your own photos, one folder per individual:
  familiar inspect PHOTOS
  familiar train PHOTOS --output runs/mine
  familiar gallery enroll ALBUM PHOTOS --model runs/mine"""
    )


def _album(output: Path, source: "SyntheticSource", embedder: "Embedder") -> dict[str, Any]:
    """Enroll some of the cats, cluster them, name a cluster of the first cat, and search for that cat.

    Each cat's last photo is not enrolled; the first cat's is the query.
    """
    from familiar.gallery import Gallery
    from familiar.photos.decoding import save_photo

    cats = [source.photos(cat) for cat in range(min(ALBUM_CATS, source.identities))]
    album = output / "album"
    album.mkdir()
    shuffled = [cat[index] for index in range(source.photos_per_identity - 1) for cat in cats]
    for number, photo in enumerate(shuffled, 1):
        save_photo(photo.draw(), album / f"{number:02}.png")
    new = save_photo(cats[0][-1].draw(), output / "tom_3.png")
    with Gallery.create(output / "gallery", embedder) as gallery:
        gallery.enroll(album)
        clusters = gallery.cluster()
        photos_of_tom = [f"{number:02}.png" for number in range(1, len(shuffled) + 1, len(cats))]
        faces = [gallery.search(album / name, k=1)[0] for name in photos_of_tom]
        named, face = next(
            (pair for pair in zip(photos_of_tom, faces, strict=True) if pair[1].identity), (photos_of_tom[0], faces[0])
        )
        if face.identity is None:
            gallery.split([face.face], "Tom")
        else:
            gallery.name(face.identity, "Tom")
        (nearest,) = gallery.identify(new, k=1)
    shown = (nearest.name or f"#{nearest.identity}") if nearest.known else "no known cat"
    return {
        "photos": len(shuffled),
        "cats": len(cats),
        "identities": clusters.identities,
        "unassigned": clusters.unassigned,
        "named": f"{album.name}/{named}",
        "shown": shown,
    }
