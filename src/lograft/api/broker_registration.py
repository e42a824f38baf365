"""BrokerRegistration, versions 0-4, controller listener: a broker joins, or comes back."""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.model.errors import LograftError
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

API: Final = Api(key=62, versions=range(5))


async def handle(
    context: Context, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    try:
        return await context.broker.controller.register_broker(request)
    except LograftError as error:
        return BrokerRegistrationResponse(error_code=code_of(error))
