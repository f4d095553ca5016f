"""The API holds to what its OpenAPI document promises, whatever it is asked."""

import pytest
from serving.contract import contract

from familiar.app.web.settings import Settings


@pytest.mark.slow
def test_api_conforms_to_openapi_document(settings: Settings):
    said = contract(settings, examples=2)
    assert said.broke == ()
    assert said.cases > 500
