"""UnregisterBroker, version 0: removes the registration of a broker for good."""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.metadata.brokers import unregister_broker
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

API: Final = Api(key=64, versions=range(1), needs=whole_request(CLUSTER_ALTER))


async def handle(context: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    try:
        config = context.shared.config
        return await decide(context, lambda image: unregister_broker(image, request, config=config))
    except LograftError as error:
        return UnregisterBrokerResponse(error_code=code_of(error), error_message=str(error))
