"""DescribeCluster, versions 0-2: the nodes of the cluster.

On a broker's listener it lists brokers, on a controller's listener controllers; a request for the
other type of endpoints gets MISMATCHED_ENDPOINT_TYPE. v2: fenced brokers on request. Lograft adds a
tag for `lograft doctor`: metadata that this release does not enforce.
"""

from typing import Final

from lograft.api.authorization import cluster_operations, is_allowed
from lograft.api.context import Api, Context
from lograft.api.metadata import any_broker
from lograft.api.types import each_item
from lograft.broker.shared_services import SharedServices
from lograft.metadata.unenforced_state import describe_unenforced
from lograft.model.errors import ErrorCode
from lograft.model.settings.delegation_tokens import token_settings
from lograft.security.authorization import CLUSTER_DESCRIBE
from lograft.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

API: Final = Api(key=60, versions=range(3), needs=each_item(CLUSTER_DESCRIBE))

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    shared = context.shared
    served = CONTROLLERS if context.role == "controller" else BROKERS
    if request.endpoint_type != served:
        known = request.endpoint_type in (BROKERS, CONTROLLERS)
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message=(
                f"This listener serves endpoints of type {served}, not {request.endpoint_type}."
            ),
            endpoint_type=request.endpoint_type,
        )
    response = DescribeClusterResponse(
        cluster_id=shared.cluster_id,
        endpoint_type=served,
    )
    if is_allowed(context, CLUSTER_DESCRIBE, is_probe=True):
        # It may contain names of topics.
        has_authorizer = shared.metadata.authorizer is not None
        unenforced = describe_unenforced(
            shared.image,
            has_authorizer=has_authorizer,
            uses_tokens=token_settings(shared.config) is not None,
        )
        response.unenforced_state = list(unenforced.values())
    if served == CONTROLLERS:
        response.controller_id = shared.quorum.leader
        response.brokers = _controllers(shared, context.listener)
    else:
        response.brokers = _brokers(shared, context.listener, request.include_fenced_brokers)
        alive = [known.broker_id for known in response.brokers if not known.is_fenced]
        response.controller_id = any_broker(shared, alive)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _brokers(
    shared: SharedServices, listener: str, with_fenced: bool
) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=state.broker_id,
            host=end.host,
            port=end.port,
            rack=state.rack,
            is_fenced=state.fenced,
        )
        for state in shared.image.brokers.values()
        if (end := state.endpoint(listener)) is not None and (with_fenced or not state.fenced)
    ]


def _controllers(shared: SharedServices, listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=state.controller_id, host=end.host, port=end.port)
        for state in shared.image.controllers.values()
        for end in state.endpoints
        if end.name == listener
    ]
