"""BrokerHeartbeat, versions 0-2, controller listener: keeps a broker's registration alive and
carries its requested state."""

from functools import partial
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import controller_of
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

API: Final = Api(key=63, versions=range(3), needs=whole_request(CLUSTER_ACTION))


async def handle(context: Context, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    try:
        controller = controller_of(context)
        reply = await controller.heartbeat(request)
    except LograftError as error:
        return BrokerHeartbeatResponse(error_code=code_of(error))
    if context.when_closed is not None:
        context.when_closed(
            partial(controller.on_disconnected, request.broker_id, request.broker_epoch)
        )
    return reply
