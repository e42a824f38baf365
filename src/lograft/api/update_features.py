"""UpdateFeatures, versions 0-2: raises or lowers the level of features, all or nothing.

v1: kinds of downgrades, dry run. v2: one error for the whole request.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.metadata.features import Controller, update_features
from lograft.model.errors import LograftError
from lograft.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

API: Final = Api(key=57, versions=range(3))


async def handle(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    version = context.api_version
    controller = Controller(
        kraft_version=context.broker.kraft_version,
        min_insync_replicas=context.broker.metadata.static_config.topic_defaults.min_insync_replicas,
    )
    try:
        return await decide(
            context,
            lambda image: update_features(image, request, version=version, controller=controller),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        return UpdateFeaturesResponse(error_code=code_of(error), error_message=str(error))
