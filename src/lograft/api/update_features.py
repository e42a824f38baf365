"""UpdateFeatures, versions 0-2: raises or lowers the level of features, all or nothing.

v1: kinds of downgrades, dry run. v2: one error for the whole request.

kraft.version is in control records, which the quorum appends. Like Kafka, the active controller
raises it first, then writes the records of the other features; all of them are checked before.
"""

import asyncio
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.quorum import error_of
from lograft.api.types import whole_request
from lograft.broker.errors import NotController, WaitTimedOut
from lograft.consensus.messages import Error, UpgradeVersionRequest
from lograft.metadata.features import Controller, raises_kraft_version, update_features
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

API: Final = Api(key=57, versions=range(3), needs=whole_request(CLUSTER_ALTER))


async def handle(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    def decision(image: MetadataImage) -> ControllerResult[UpdateFeaturesResponse]:
        return update_features(
            image, request, version=context.api_version, controller=_controller(context)
        )

    def check(image: MetadataImage) -> ControllerResult[UpdateFeaturesResponse]:
        return ControllerResult((), decision(image).reply)

    try:
        if raises_kraft_version(request, context.shared.kraft_version):
            checked = await decide(context, check, timeout_ms=request.timeout_ms)
            if checked.error_code:
                return checked
            failure = await _raise_kraft_version(context, request)
            if failure is not None or request.validate_only:
                return failure or checked
        return await decide(context, decision, timeout_ms=request.timeout_ms)
    except LograftError as error:
        return UpdateFeaturesResponse(error_code=code_of(error), error_message=str(error))


def _controller(context: Context) -> Controller:
    return Controller(
        kraft_version=context.shared.kraft_version,
        min_insync_replicas=context.shared.metadata.static_config.topic_defaults.min_insync_replicas,
    )


async def _raise_kraft_version(
    context: Context, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse | None:
    """Returns None if the new level is committed, or may be committed."""
    quorum = context.shared.quorum
    upgrade = UpgradeVersionRequest(
        voter=quorum.describe_voter(), validate_only=request.validate_only
    )
    try:
        async with asyncio.timeout(max(0, request.timeout_ms) / 1000):
            response = await quorum.ask(upgrade)
    except TimeoutError:
        raise WaitTimedOut(f"not committed within {request.timeout_ms} ms") from None
    if response.error is Error.NOT_LEADER:
        raise NotController("this node is no longer the active controller")
    code, message = error_of(response)
    return UpdateFeaturesResponse(error_code=code, error_message=message) if code else None
