"""The API conforms to its OpenAPI document."""

import pytest
from serving.contract import contract

from familiar.web.settings import Settings
from support.tiers import small_and_exhaustive

A_READ_AND_A_WRITE = ("list_photos", "undo")


@pytest.mark.slow
@pytest.mark.parametrize(("operations", "least_cases"), small_and_exhaustive((A_READ_AND_A_WRITE, 40), ((), 501)))
def test_api_conforms_to_openapi_document(settings: Settings, operations: tuple[str, ...], least_cases: int):
    report = contract(settings, examples=2, operations=operations)
    assert report.failures == ()
    assert report.cases >= least_cases
