import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(3))
def test_levels_change_within_what_is_supported(version: int) -> None:
    async def scenario(bench: Bench) -> None:
        async def update(feature: str, level: int) -> tuple[int, list[int]]:
            request = UpdateFeaturesRequest(
                feature_updates=[FeatureUpdateKey(feature=feature, max_version_level=level)]
            )
            response = await bench.ask(request, version, UpdateFeaturesResponse)
            return response.error_code, [result.error_code for result in response.results]

        assert await update("metadata.version", 30) == (0, [0] if version < 2 else [])
        code, results = await update("no.such.feature", 1)
        assert (code, results) == (ErrorCode.invalid_update_version, [])
        bench.controller.down = True
        assert (await update("metadata.version", 30))[0] == ErrorCode.request_timed_out

    run(scenario)
