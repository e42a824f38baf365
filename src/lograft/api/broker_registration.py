"""BrokerRegistration, versions 0-4, controller listener: a broker joins or rejoins the cluster."""

import logging
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import controller_of
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.broker.errors import NotController
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

LOGGER: Final = logging.getLogger(__name__)

API: Final = Api(key=62, versions=range(5), needs=whole_request(CLUSTER_ACTION))


async def handle(
    context: Context, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    try:
        return await controller_of(context).register_broker(request)
    except NotController as error:
        return BrokerRegistrationResponse(error_code=code_of(error))
    except LograftError as error:
        # The response has no error message.
        LOGGER.warning("Rejected the registration of broker %d: %s", request.broker_id, error)
        return BrokerRegistrationResponse(error_code=code_of(error))
