"""What tests share: small data, servers, slow references, and measures of the tests themselves."""

from importlib.util import find_spec

if find_spec("beartype"):  # not in the plain environment
    import support.typecheck  # noqa: F401 - jaxtyping imports only `support`, then reads `support.typecheck.beartype`
