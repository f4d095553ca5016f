"""The results of one evaluation, and their JSON document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from familiar.core.data_table import DataTable, TableSource, texts
from familiar.core.errors import BadResults
from familiar.core.format_marks import explain_other_format
from familiar.core.json_codec import CustomType, JsonCodec
from familiar.evaluation.missing import missing_reason
from familiar.evaluation.results.figures import Figure, Figures, Value, read_figure
from familiar.evaluation.results.html_view import results_html
from familiar.evaluation.results.labels import find_label

FORMAT = "familiar-evaluation/1"  # docs/reference/formats.md lists the keys

_CODEC = JsonCodec(custom={Figure: CustomType(lambda figure, _: vars(figure), lambda content, _: read_figure(content))})
_SETTINGS = ("seed", "interval_pairs")  # say how figures were computed


@dataclass(frozen=True)
class ModelInfo:
    """The model. Of several bundles, `recipe` and `network` list those of each.

    `tta`: how embeddings were averaged. `resize_px`: replaces the bundle's own preprocessing. `centered`: whether the
    means of the photos were subtracted, as a gallery does if a bundle has species means.
    """

    file_id: str
    space_id: str
    recipe: str
    network: str
    size_bytes: int
    embedding_dim: int
    tta: Literal["flip"] | None
    thresholds_fitted: bool
    resize_px: int | None
    centered: bool = False

    @property
    def comparison(self) -> str:
        """How embeddings were compared, to be put after "compared "."""
        return "less the means of the photos, as a gallery compares them" if self.centered else "as they are"


@dataclass(frozen=True)
class RoutingInfo:
    """How many photos of each species there are.

    `photos`: by species. `without_bundle`: how many were skipped, of species without a bundle.
    """

    photos: dict[str, int]
    without_bundle: int


@dataclass(frozen=True)
class DataInfo:
    """The evaluated photos.

    `skipped`: why photos could not be evaluated. The numbers seen are None if unknown. `collections_trained_on`: names
    of folders of the data from which the model learned, even if from other identities. `routing`: None if the model is
    a single bundle.
    """

    sources: tuple[str, ...]
    split: Literal["test", "all"]
    identities: int
    photos: int
    identities_seen_in_training: int | None
    identities_seen_in_validation: int | None
    skipped: tuple[str, ...]
    fingerprint: str
    collections_trained_on: tuple[str, ...] = ()
    routing: RoutingInfo | None = None


@dataclass(frozen=True)
class IntervalSettings:
    """How confidence intervals were computed."""

    confidence: float
    resampled: str
    replicates: int
    seed: int


@dataclass(frozen=True)
class LeakedPicture:
    """Photos that show the same picture, and the names of their identities. `exact`: the same file or pixels."""

    photos: tuple[str, ...]
    identities: tuple[str, ...]
    exact: bool
    similarity: float


@dataclass(frozen=True)
class ComparedPhotos:
    """Numbers of photos in a leak check. `seen_in_training`: None if the run's photos are not available."""

    evaluated: int
    seen_in_training: int | None


@dataclass(frozen=True)
class LeakResults:
    """The result of a leak check. `excluded`: number of photos that were left out because of it."""

    compared: ComparedPhotos
    across_splits: tuple[LeakedPicture, ...]
    across_identities: tuple[LeakedPicture, ...]
    excluded: int


@dataclass(frozen=True)
class EvaluationResults(TableSource):
    """The results of an evaluation: the contents of `eval_results.json`.

    Attributes:
        model: the evaluated model.
        data: the photos that it was evaluated on.
        interval: how the intervals of all figures were computed.
        leaks: photos in several splits or of several identities; None if leaks were not looked for.
        reasons: why a suite that was run could not be computed, by its name.
        missing: why a figure has no value, by its path.
        figures: what the suites measured, by path, such as "verification.tar_at_far.1e-2". A suite that was not run,
            or could not be computed, has no figures.
        replicates: each headline figure on bootstrap samples, by its path. A comparison of two models reads them.
    """

    model: ModelInfo
    data: DataInfo
    interval: IntervalSettings
    leaks: LeakResults | None
    reasons: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)
    replicates: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def suites(self) -> tuple[str, ...]:
        """The names of the suites that were computed."""
        return tuple(dict.fromkeys(path.partition(".")[0] for path in self.figures))

    def has_suite(self, name: str) -> bool:
        """Tell whether a suite was run, even if it could not be computed.

        Args:
            name: of the suite, such as "verification".
        """
        return name in self.suites or name in self.reasons

    def value(self, path: str) -> Value:
        """Return the value of the figure at a path; None if it could not be computed, or was not measured.

        Args:
            path: such as "verification.tar_at_far.1e-2".
        """
        figure = self.figures.get(path)
        return None if figure is None else figure.value

    def number(self, path: str) -> float | None:
        """Return the value of a figure if it is a number.

        Args:
            path: such as "verification.tar_at_far.1e-2".
        """
        value = self.value(path)
        return None if isinstance(value, str | bool) else value

    def reason(self, path: str) -> str:
        """Return why there is no value at a path: because of the figure itself, or of what it is part of.

        Args:
            path: such as "verification.tar_at_far.1e-4".
        """
        keys = path.split(".")
        for end in range(len(keys), 0, -1):
            if (reason := self.missing.get(".".join(keys[:end]))) is not None:
                return reason.removeprefix(f"{keys[end - 1]}: ")
        return missing_reason(path)

    def table(self) -> DataTable:
        """Return a table with a row for each number: suite, metric, label, value, and its interval from low to high.

        A metric is named by its path within the suite, such as "tar_at_far.1e-2". Without an interval, its ends are
        NaN.
        """
        rows = [
            (suite, metric, figure.value, figure.interval or (np.nan, np.nan))
            for path, figure in self.figures.items()
            for suite, _, metric in (path.partition("."),)
            if isinstance(figure.value, float | int) and not isinstance(figure.value, bool)
            if not {*metric.split(".")}.intersection(_SETTINGS)
        ]
        ends = np.array([interval for *_, interval in rows], np.float64).reshape(-1, 2)
        return DataTable(
            {
                "suite": texts(suite for suite, *_ in rows),
                "metric": texts(metric for _, metric, *_ in rows),
                "label": texts(find_label(metric).name for _, metric, *_ in rows),
                "value": np.array([value for _, _, value, _ in rows], np.float64),
                "low": ends[:, 0],
                "high": ends[:, 1],
            }
        )

    def __repr__(self) -> str:
        suites = ", ".join(self.suites) or "no suite"
        return f"EvaluationResults({self.data.photos:,} photos of {self.data.identities:,} identities: {suites})"

    def _repr_html_(self) -> str:
        return results_html(self)

    def to_json(self, *, with_replicates: bool = True) -> dict[str, Any]:
        """Return the document of `eval_results.json`, made of dicts, lists and scalars.

        Args:
            with_replicates: include `replicates`.
        """
        document: dict[str, Any] = {"format": FORMAT, **_CODEC.to_json(self)}
        if not with_replicates:
            del document["replicates"]
        return document

    @classmethod
    def from_json(cls, document: Any) -> "EvaluationResults":
        """Restore results from the document of `eval_results.json`.

        Args:
            document: content of the file, as `json.loads` returns it.

        Raises:
            BadResults: the document is no results, of another format, or keys are missing or unknown.
        """
        if not isinstance(document, Mapping) or not document.keys() & {"format", "format_version"}:
            raise BadResults("holds no results of `familiar evaluate`")
        if document.get("format") != FORMAT:
            raise BadResults(explain_other_format(document.get("format"), FORMAT, "evaluate again"))
        try:
            results = _CODEC.from_json(cls, {key: value for key, value in document.items() if key != "format"})
            for path, values in results.replicates.items():
                if not isinstance(results.value(path), float | int) or not values:
                    raise ValueError(f"replicates.{path} has no values, or is of no figure")
        except ValueError as error:
            raise BadResults(f"is not a complete eval_results.json ({error}); evaluate again") from error
        return results
