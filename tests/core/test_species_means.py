import pytest

from familiar.core.calibration import Calibration, Threshold
from familiar.core.species_means import SpeciesMeans

POINT = Threshold(0.5, 0.01, 0.9)
CALIBRATION = Calibration(POINT, POINT, POINT, 10.0, -5.0, 0.01, 100, 1000, 0.01)


def test_species_means_are_rows_by_name():
    means = SpeciesMeans({"dog": (0.0, 0.5), "cat": (0.6, 0.0)}, CALIBRATION)
    assert means.rows().tolist() == [[0.6, 0.0], [0.0, 0.5]], "by name"
    assert means.embedding_dim == 2


@pytest.mark.parametrize(
    "means",
    [
        {},
        {"cat": ()},
        {"cat": (0.5, 0.0), "dog": (0.5,)},
        {"cat": (0.0, 0.0)},
        {"cat": (1.0, 0.5)},
        {"cat": (float("nan"), 0.5)},
    ],
)
def test_means_of_no_unit_vectors_are_rejected(means):
    with pytest.raises(ValueError, match="must be means of unit vectors"):
        SpeciesMeans(means, CALIBRATION)
