"""What every API module declares must be what the wire's table advertises for it."""

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
def test_the_head_of_a_module_says_what_is_served(spec: ApiSpec) -> None:
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
def test_a_route_can_be_made(spec: ApiSpec) -> None:
    route = Route(spec)
    assert route.request_kind.__name__ == f"{spec.name}Request"
    assert route.response_kind.__name__ == f"{spec.name}Response"


#: Their handlers report the errors of each partition; nothing else is expected to fail.
WITHOUT_ERROR_RESPONSE = {"Produce", "ListOffsets", "OffsetForLeaderEpoch"}


@pytest.mark.parametrize("spec", SERVED, ids=lambda spec: spec.name)
def test_a_failed_request_gets_a_response(spec: ApiSpec) -> None:
    """Without one the connection would be closed, and the client would not learn why."""
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
