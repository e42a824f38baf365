"""The declarations of every API module match the table of the protocol."""

import inspect
from importlib import import_module

import pytest

from lograft.api.context import Api
from lograft.api.router import Route, served_apis
from lograft.model.errors import ErrorCode
from lograft.wire.apis import ApiSpec
from lograft.wire.codec import write
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest

SERVED = sorted({*served_apis("broker"), *served_apis("controller")})


@pytest.mark.parametrize("spec", SERVED, ids=lambda spec: spec.name)
def test_module_docstring_starts_with_name_and_versions(spec: ApiSpec) -> None:
    module = import_module(f"lograft.api.{spec.module}")
    assert isinstance(module.API, Api)
    assert module.API.key == spec.key
    assert module.API.versions == range(spec.min_version, spec.max_version + 1)
    assert list(inspect.signature(module.handle).parameters) == ["context", "request"]
    first_line = (module.__doc__ or "").partition("\n")[0]
    versions = f"{spec.min_version}-{spec.max_version}"
    if spec.min_version == spec.max_version:
        versions = f"version {spec.min_version}"
    assert first_line.startswith(spec.name)
    assert versions in first_line


@pytest.mark.parametrize("spec", SERVED, ids=lambda spec: spec.name)
def test_route_can_be_created(spec: ApiSpec) -> None:
    route = Route(spec)
    assert route.request_kind.__name__ == f"{spec.name}Request"
    assert route.response_kind.__name__ == f"{spec.name}Response"


#: Their handlers report the errors of each partition; no other errors are expected.
WITHOUT_ERROR_RESPONSE = {"Produce", "ListOffsets", "OffsetForLeaderEpoch"}


@pytest.mark.parametrize("spec", SERVED, ids=lambda spec: spec.name)
def test_failed_request_gets_a_response(spec: ApiSpec) -> None:
    """Without a response the connection would be closed, and the client would not know why."""
    route = Route(spec)
    if spec.name in WITHOUT_ERROR_RESPONSE:
        assert route.error_response is None
        return
    assert route.error_response is not None
    request = (
        FindCoordinatorRequest(coordinator_keys=["group"])
        if spec.name == "FindCoordinator"
        else route.request_kind()
    )
    response = route.error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, "why")
    assert type(response) is route.response_kind
    write(response, spec.max_version)
