"""Vote, BeginQuorumEpoch and EndQuorumEpoch between brokers: Raft among the replicas of data
partitions. Not advertised: clients do not use them, and Kafka's tools expect them only on
controllers' listeners.
"""

from collections.abc import Coroutine
from typing import Any, Final

from lograft.api.context import Context
from lograft.api.types import whole_request
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.message import Message

#: Served on the inter-broker listener without being advertised to clients.
KEYS: Final = frozenset({52, 53, 54})
NEEDS: Final = whole_request(CLUSTER_ACTION)


def handle(context: Context, request: Message) -> Coroutine[Any, Any, Message]:
    return context.broker.replicas.raft.votes.on_request(request)
