"""The API holds to what its OpenAPI document promises, whatever it is asked."""

import pytest
from serving.contract import contract

from familiar.app.web.settings import Settings
from support.tiers import small_and_exhaustive

ONE_OF_EACH_KIND = ("list_photos", "search_photo", "merge_identities", "undo")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operations", "least_cases"), small_and_exhaustive((ONE_OF_EACH_KIND, 40), ((), 501))
)
def test_api_conforms_to_openapi_document(settings: Settings, operations: tuple[str, ...], least_cases: int):
    said = contract(settings, examples=2, operations=operations)
    assert said.broke == ()
    assert said.cases >= least_cases
