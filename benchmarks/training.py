"""Compare the speed of `familiar train` with a minimal training loop on tensors in memory, epoch by epoch.

    training.py [--sides 224 112] [--batches 96] [--epochs 7] [--photos 960] [--compile] [--memory] [--cold]
                [--profile FILE] [--data DATA]

After each epoch of a real `fit` (packed crops, the recipe's whole augmentation), a loop of only forward, backward and
step runs over the same number of photos with the same threads, in the same process; with `--compile`, both run the
compiled network. Printed are the medians of both and of their ratio, without the first epoch, whose time is compared
with the others'. On a GPU both run in bf16. `--data` trains on a folder of identities instead of drawn cats.

At most ten minutes of a GPU measure what `docs/benchmarks/speed.md` asks for:

    training.py --batches 96 512 --epochs 4 --photos 12288 --profile steps.txt
"""

import argparse
import resource
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import torch

from familiar.datasets.folders import DataSpec, open_photo
from familiar.datasets.synthetic import SyntheticSource
from familiar.loading.cache import CropCache
from familiar.losses.classifiers import ArcFace
from familiar.photos.decoding import save_photo
from familiar.recipes import recipe_named
from familiar.training.fitting import fit
from familiar.training.history import EpochRecord
from familiar.training.loop import StepProgress
from familiar.training.network import build_network
from familiar.training.optimizer import build_optimizer
from familiar.training.recipe import Recipe

PHOTOS_PER_IDENTITY = 12
PROFILED_STEPS = 20
PUBLISHED_PHOTOS, PUBLISHED_EPOCHS = 100_000, 40  # of the published pet embedder, for the predicted time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[224, 112])
    parser.add_argument("--batches", type=int, nargs="+", default=[96])
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--photos", type=int, default=960)
    parser.add_argument("--compile", action="store_true", help="Compile the network, in both loops.")
    parser.add_argument("--data", help="a folder with a folder of photos for each identity (default: drawn cats)")
    parser.add_argument("--memory", action="store_true", help="Run ten epochs and print the peak memory after each.")
    parser.add_argument("--cold", action="store_true", help="Compare decoding files with reading the crop cache.")
    parser.add_argument(
        "--profile", type=Path, help=f"file for a profile of {PROFILED_STEPS} steps of the second epoch"
    )
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {device}")
    with tempfile.TemporaryDirectory() as folder:
        for side in options.sides:
            for batch_size in options.batches:
                recipe = recipe_for(side, batch_size, 10 if options.memory else options.epochs)
                if options.cold:
                    compare_with_cache(recipe, options.photos, Path(folder), device)
                else:
                    compare_with_minimal_loop(recipe, options, Path(folder), device)


def recipe_for(side: int, batch_size: int, epochs: int) -> Recipe:
    """Return pet-mobile with random weights, and nearly without validation."""
    return recipe_named("pet-mobile").with_settings(
        [
            "model.initial_weights=none",
            f"input.size_px={side}",
            f"input.resize_px={side}",
            f"sampler.batch_size={batch_size}",
            f"budget.epochs={epochs}",
            "validation.every_epochs=1000",
            "split.test=0",
            "split.validation=0.02",
        ]
    )


def compare_with_minimal_loop(recipe: Recipe, options: argparse.Namespace, folder: Path, device: torch.device) -> None:
    """Train, and run the minimal loop after each epoch."""
    identities = options.photos // PHOTOS_PER_IDENTITY + 4
    minimal_loop = MinimalLoop(recipe, identities, device, options.compile)
    fit_speeds: list[float] = []
    minimal_speeds: list[float] = []
    seconds: list[float] = []
    peaks: list[int] = []

    def on_epoch(record: EpochRecord) -> None:
        fit_speeds.append(record.photos_per_second)
        seconds.append(record.seconds)
        minimal_speeds.append(minimal_loop.photos_per_second(options.photos))
        print(f"  epoch {record.epoch}: ours {fit_speeds[-1]:.0f}, bare {minimal_speeds[-1]:.0f} photos/s", flush=True)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        if record.epoch == recipe.budget.epochs:
            raise EnoughEpochs

    side, batch_size = recipe.input.size_px, recipe.sampler.batch_size
    run = folder / f"run {side} {batch_size}"
    data = DataSpec((options.data or f"synthetic:cats:{identities}x{PHOTOS_PER_IDENTITY}",))
    cache = CropCache(folder / "cache")
    profile = options.profile and options.profile.with_stem(f"{options.profile.stem}_{side}_{batch_size}")
    on_step = StepProfile(profile) if profile else lambda _: None
    with suppress(EnoughEpochs):
        fit(recipe, data, run, cache=cache, device=device, compiled=options.compile, on_step=on_step, on_epoch=on_epoch)
    warm = slice(2 if profile else 1, None)  # the first epoch warms both up, and a profile slows the second one down
    ours, bare = fit_speeds[warm], minimal_speeds[warm]
    ratio = median(speed / minimal for speed, minimal in zip(ours, bare, strict=True))
    print(
        f"{side} px, batch {batch_size}{', compiled' if options.compile else ''}: "
        f"ours {median(ours):.0f} photos/s, bare {median(bare):.0f}, ratio {ratio:.2f}; "
        f"first epoch {seconds[0]:.1f} s, {seconds[0] / median(seconds[warm]):.1f} times the others",
        flush=True,
    )
    if options.memory:
        print(f"  peak memory after each epoch, MiB: {' '.join(map(str, peaks))}")
    if device.type == "cuda":
        minutes = PUBLISHED_PHOTOS * PUBLISHED_EPOCHS / median(ours) / 60
        print(f"  {PUBLISHED_EPOCHS} epochs of {PUBLISHED_PHOTOS:,} photos at this rate: {minutes:.1f} minutes")


def compare_with_cache(recipe: Recipe, photos: int, folder: Path, device: torch.device) -> None:
    """Train on JPEG files of 512 px, decoded in every epoch or only once."""
    source = folder / "photos"
    pets = SyntheticSource("cats", photos // PHOTOS_PER_IDENTITY + 4, PHOTOS_PER_IDENTITY)
    for identity in range(pets.identities if not source.exists() else 0):
        (source / f"{identity:04d}").mkdir(parents=True)
        for index, photo in enumerate(pets.photos(identity)):
            picture = open_photo(photo, min_side_px=512)
            save_photo(picture, source / f"{identity:04d}" / f"{index}.jpg")
    data = DataSpec((str(source),))
    speeds: dict[str, list[float]] = {"decoding every epoch": [], "from the cache": []}
    for name, cache in (("decoding every epoch", None), ("from the cache", CropCache(folder / "cache"))):
        run = folder / f"{name} {recipe.input.size_px}"
        fit(
            recipe,
            data,
            run,
            cache=cache,
            device=device,
            on_epoch=lambda record, name=name: speeds[name].append(record.photos_per_second),
        )
    decoding, cached = (median(speed[1:]) for speed in speeds.values())
    print(
        f"{recipe.input.size_px} px, JPEG files of 512 px: decoding every epoch {decoding:.0f} photos/s, "
        f"from the cache {cached:.0f}, {cached / decoding:.2f} times as fast",
        flush=True,
    )


class EnoughEpochs(Exception):
    """All epochs are timed; the export that follows is not."""


class StepProfile:
    """A profile of steps of the second epoch, written to a file; called after each step."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.profiler = torch.profiler.profile()

    def __call__(self, progress: StepProgress) -> None:
        if (progress.record.epoch, progress.step) == (2, 1):
            self.profiler.start()
        elif (progress.record.epoch, progress.step) == (2, 1 + PROFILED_STEPS):
            self.profiler.stop()
            by = "cuda_time_total" if torch.cuda.is_available() else "cpu_time_total"
            self.file.write_text(self.profiler.key_averages().table(sort_by=by, row_limit=60))


class MinimalLoop:
    """Forward, loss, backward and step on one batch that is in memory already."""

    def __init__(self, recipe: Recipe, identities: int, device: torch.device, compiled: bool) -> None:
        side, size = recipe.input.size_px, recipe.sampler.batch_size
        self.device = device
        self.network = build_network(recipe).to(device).to(memory_format=torch.channels_last).train()
        self.embed = torch.compile(self.network, dynamic=False) if compiled else self.network
        self.objective = ArcFace(recipe.model.embedding_dim, identities, label_smoothing=0.1).to(device)
        self.optimizer = build_optimizer(self.network, self.objective, recipe.optimizer, 40).parts[0]
        images = torch.randn(size, 3, side, side, device=device)
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(identities, (size,), device=device)

    def photos_per_second(self, photos: int) -> float:
        """Train on about `photos` photos and measure the speed."""
        steps = max(1, photos // len(self.labels))
        self.synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                embeddings = self.embed(self.images)
            loss = self.objective(embeddings, self.labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.synchronize()
        return steps * len(self.labels) / (time.perf_counter() - started)

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()
