import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.unit.broker.bench import Bench, run

GROUP, TRANSACTION, SHARE = range(3)


@pytest.mark.parametrize("version", range(7))
def test_there_are_no_coordinators_yet(version: int) -> None:
    async def scenario(bench: Bench) -> None:
        async def codes(key_type: int) -> list[int]:
            request = FindCoordinatorRequest()
            if version >= 1:
                request.key_type = key_type
            if version >= 4:
                request.coordinator_keys = ["a", "b"]
            else:
                request.key = "a"
            response = await bench.ask(request, version, FindCoordinatorResponse)
            if version < 4:
                assert response.node_id == -1
                return [response.error_code]
            assert [coordinator.key for coordinator in response.coordinators] == ["a", "b"]
            return [coordinator.error_code for coordinator in response.coordinators]

        assert set(await codes(GROUP)) == {ErrorCode.coordinator_not_available}
        if version >= 1:
            assert set(await codes(TRANSACTION)) == {ErrorCode.coordinator_not_available}
            expected = (
                ErrorCode.coordinator_not_available if version >= 6 else ErrorCode.invalid_request
            )
            assert set(await codes(SHARE)) == {expected}
            assert set(await codes(9)) == {ErrorCode.invalid_request}

    run(scenario)
