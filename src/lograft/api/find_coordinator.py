"""FindCoordinator, versions 0-6: the broker that coordinates a group or transactional id.

This is the leader of the key's partition of the internal topic. The first request causes the topic
to be created. COORDINATOR_NOT_AVAILABLE: the topic cannot be created now, or the partition has no
leader. v1: transactions (key type 1). v4: several keys in one request. v6: share groups (key type
2), which this release does not support.
"""

from typing import Any, Final

from lograft.api.authorization import is_allowed, permission_error
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.broker.coordinators.coordinator_runtime import CoordinatorRuntime
from lograft.coordination.errors import CoordinatorNotAvailable
from lograft.model.errors import ErrorCode, LograftError, Rejected
from lograft.model.types import NO_NODE
from lograft.security.authorization import (
    CLUSTER_ACTION,
    CLUSTER_NAME,
    GROUP_DESCRIBE,
    TRANSACTIONAL_ID_DESCRIBE,
)
from lograft.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API: Final = Api(
    key=10,
    versions=range(7),
    needs=each_item(GROUP_DESCRIBE, TRANSACTIONAL_ID_DESCRIBE, CLUSTER_ACTION),
)

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
SHARE_SINCE: Final = 6
BATCHES_SINCE: Final = 4
#: Only brokers look for the coordinators of share groups.
PERMISSIONS: Final = {
    GROUP: GROUP_DESCRIBE,
    TRANSACTION: TRANSACTIONAL_ID_DESCRIBE,
    SHARE: CLUSTER_ACTION,
}


async def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.api_version >= BATCHES_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                await _find(context, request.key_type, key) for key in request.coordinator_keys
            ]
        )
    coordinator = await _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def error_response(
    request: FindCoordinatorRequest, code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    if request.coordinator_keys:
        return FindCoordinatorResponse(
            coordinators=[
                _build_error_coordinator(key, code, message) for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(
        error_code=code, error_message=message, node_id=NO_NODE, host="", port=-1
    )


def _build_error_coordinator(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=message
    )


async def _find(context: Context, key_type: int, key: str) -> Coordinator:
    broker = context.broker
    try:
        _check_access(context, key_type, key)
        coordinators = _coordinators(broker, key_type, context.api_version)
        await broker.internal_topics.ensure(coordinators.topic)
        index = coordinators.partition_of(key)
        topic = broker.image.topic(coordinators.topic)
        state = None if topic is None else topic.partitions.get(index)
        end = None if state is None else broker.endpoint_of(state.leader, context.listener)
        if state is None or end is None:
            raise CoordinatorNotAvailable(f"{coordinators.topic}-{index} has no leader.")
    except LograftError as error:
        return _build_error_coordinator(key, code_of(error), str(error))
    return Coordinator(key=key, node_id=state.leader, host=end.host, port=end.port)


def _check_access(context: Context, key_type: int, key: str) -> None:
    permission = PERMISSIONS.get(key_type)
    if permission is None:
        return
    name = CLUSTER_NAME if permission is CLUSTER_ACTION else key
    if not is_allowed(context, permission, name):
        raise permission_error(permission, name)


def _coordinators(broker: Broker, key_type: int, version: int) -> CoordinatorRuntime[Any]:
    if key_type == GROUP:
        return broker.groups
    if key_type == TRANSACTION:
        return broker.transactions
    if key_type == SHARE and version >= SHARE_SINCE:
        raise CoordinatorNotAvailable("This release of Lograft has no share groups.")
    raise Rejected(ErrorCode.INVALID_REQUEST, f"Coordinator type {key_type} does not exist.")
