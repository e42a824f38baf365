from uuid import UUID

import pytest

from lograft.broker.quorum.snapshots import Quorum
from lograft.consensus import messages as core
from lograft.consensus.types import ReplicaKey, VoterSet
from lograft.model.errors import ErrorCode
from lograft.model.types import Epoch, NodeId
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(3))
@scenario(run)
async def test_levels_change_within_the_supported_range(bench: Bench, /, version: int) -> None:
    async def update(feature: str, level: int) -> tuple[int, list[int]]:
        request = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature=feature, max_version_level=level)]
        )
        response = await bench.ask(request, version, UpdateFeaturesResponse)
        return response.error_code, [result.error_code for result in response.results]

    assert await update("metadata.version", 30) == (0, [0] if version < 2 else [])
    code, results = await update("no.such.feature", 1)
    assert (code, results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    bench.controller.down = True
    assert (await update("metadata.version", 30))[0] == ErrorCode.REQUEST_TIMED_OUT


STATIC = Quorum(0, VoterSet.of([ReplicaKey(NodeId(1))], is_static=True))
DYNAMIC = Quorum(1, VoterSet.of([ReplicaKey(NodeId(1), UUID(int=77))]))


def upgrade(*more: tuple[str, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        timeout_ms=1000,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level)
            for name, level in (("kraft.version", 1), *more)
        ],
        validate_only=validate_only,
    )


def answer_of(error: core.Error = core.Error.NONE) -> core.VoterChangeResponse:
    return core.VoterChangeResponse(sender=NodeId(1), epoch=Epoch(3), error=error)


@pytest.mark.parametrize("validate_only", [False, True])
@scenario(run)
async def test_the_quorum_raises_kraft_version(bench: Bench, /, validate_only: bool) -> None:
    quorum = bench.quorum
    quorum.quorum, quorum.answer = STATIC, answer_of()
    written = len(bench.controller.log)
    response = await bench.ask(upgrade(validate_only=validate_only), 2, UpdateFeaturesResponse)
    assert response.error_code == 0
    assert quorum.asked is not None
    asked = quorum.asked[0]
    assert isinstance(asked, core.UpgradeVersionRequest)
    assert (asked.voter.key, asked.validate_only) == (quorum.me, validate_only)
    assert len(bench.controller.log) == written


@scenario(run)
async def test_invalid_feature_prevents_the_kraft_version_upgrade(bench: Bench, /) -> None:
    bench.quorum.quorum = STATIC
    request = upgrade(("no.such.feature", 1))
    response = await bench.ask(request, 2, UpdateFeaturesResponse)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert bench.quorum.asked is None


@scenario(run)
async def test_current_kraft_version_needs_no_upgrade(bench: Bench, /) -> None:
    bench.quorum.quorum = DYNAMIC
    assert (await bench.ask(upgrade(), 2, UpdateFeaturesResponse)).error_code == 0
    assert bench.quorum.asked is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (core.Error.VERSION_NOT_SUPPORTED, ErrorCode.INVALID_UPDATE_VERSION),
        (core.Error.CHANGE_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT),
        (core.Error.TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (core.Error.NOT_LEADER, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
@scenario(run)
async def test_rejected_kraft_version_prevents_other_features(
    bench: Bench, /, error: core.Error, code: ErrorCode
) -> None:
    bench.quorum.quorum, bench.quorum.answer = STATIC, answer_of(error)
    written = len(bench.controller.log)
    request = upgrade(("metadata.version", 30))
    response = await bench.ask(request, 2, UpdateFeaturesResponse)
    assert response.error_code == code
    assert response.error_message
    assert len(bench.controller.log) == written
