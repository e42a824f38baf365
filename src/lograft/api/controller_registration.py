"""ControllerRegistration, version 0, controller listener: a controller registers its endpoints."""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.metadata.brokers import register_controller
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

API: Final = Api(key=70, versions=range(1), needs=whole_request(CLUSTER_ACTION))


async def handle(
    context: Context, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    try:
        return await decide(context, lambda image: register_controller(image, request))
    except LograftError as error:
        return ControllerRegistrationResponse(error_code=code_of(error), error_message=str(error))
