"""The API conforms to its OpenAPI document."""

import pytest
from serving.contract import contract

from familiar.web.settings import Settings
from support.tiers import small_and_exhaustive

A_READ_AND_A_WRITE = ("list_photos", "undo")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operations", "examples", "least_cases"), small_and_exhaustive((A_READ_AND_A_WRITE, 2, 40), ((), 20, 1_000))
)
def test_api_conforms_to_openapi_document(
    settings: Settings, operations: tuple[str, ...], examples: int, least_cases: int
):
    report = contract(settings, examples=examples, operations=operations)
    assert report.failures == ()
    assert report.cases >= least_cases
