"""The metrics of a client's connections: for the whole client, and for each broker."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from lograft.client.metering.declarations import (
    CLIENT,
    NODE,
    Distribution,
    Reading,
    distribution,
    gauge,
    meter,
)

if TYPE_CHECKING:
    from lograft.client.broker_connection import BrokerConnection

#: The node-id tag of addresses whose broker is not known yet, as in Kafka.
BOOTSTRAP_NODE: Final = "node--1"
_BY_NODE: Final = ("node-id",)

CONNECTIONS: Final = gauge("connection-count", CLIENT, "Open connections.")
CONNECTIONS_OPENED: Final = meter("connection-creation", CLIENT, "Connections that were opened.")
CONNECTIONS_CLOSED: Final = meter("connection-close", CLIENT, "Connections that were closed.")
AUTHENTICATIONS: Final = meter(
    "successful-authentication", CLIENT, "Connections that were authenticated with SASL."
)
AUTHENTICATION_FAILURES: Final = meter(
    "failed-authentication", CLIENT, "Connections whose authentication failed."
)
REAUTHENTICATIONS: Final = meter(
    "successful-reauthentication", CLIENT, "Sessions that were renewed on their connection."
)
REAUTHENTICATION_FAILURES: Final = meter(
    "failed-reauthentication", CLIENT, "Sessions whose renewal was rejected."
)
REAUTHENTICATION_LATENCIES: Final = distribution(
    "reauthentication-latency", CLIENT, "Milliseconds that the renewal of a session took."
)
NETWORK_OPERATIONS: Final = meter(
    "network-io", CLIENT, "Reads and writes of all connections together."
)
RECEIVED_BYTES: Final = meter("incoming-byte", CLIENT, "Bytes of responses.")
SENT_BYTES: Final = meter("outgoing-byte", CLIENT, "Bytes of requests.")
REQUESTS: Final = meter("request", CLIENT, "Requests sent.")
REQUEST_SIZES: Final = distribution("request-size", CLIENT, "Bytes of a request.")
RESPONSES: Final = meter("response", CLIENT, "Responses received.")

NODE_RECEIVED_BYTES: Final = meter(
    "incoming-byte", NODE, "Bytes of responses of one broker.", tags=_BY_NODE
)
NODE_SENT_BYTES: Final = meter(
    "outgoing-byte", NODE, "Bytes of requests to one broker.", tags=_BY_NODE
)
NODE_REQUESTS: Final = meter("request", NODE, "Requests sent to one broker.", tags=_BY_NODE)
NODE_REQUEST_SIZES: Final = distribution(
    "request-size", NODE, "Bytes of a request to one broker.", tags=_BY_NODE
)
NODE_RESPONSES: Final = meter("response", NODE, "Responses of one broker.", tags=_BY_NODE)
NODE_LATENCIES: Final = distribution(
    "request-latency",
    NODE,
    "Milliseconds between a request to one broker and its response.",
    tags=_BY_NODE,
)


class Traffic:
    """Requests to one broker, and their responses."""

    __slots__ = ("latencies", "received_bytes", "request_sizes", "responses")

    def __init__(self) -> None:
        self.request_sizes = Distribution()
        #: In milliseconds.
        self.latencies = Distribution()
        self.responses = 0
        self.received_bytes = 0

    def add(self, other: "Traffic") -> None:
        self.request_sizes.add(other.request_sizes)
        self.latencies.add(other.latencies)
        self.responses += other.responses
        self.received_bytes += other.received_bytes


class NetworkMetrics:
    """Counts for all connections of one client."""

    def __init__(self) -> None:
        #: By the value of the tag node-id.
        self._by_node: dict[str, Traffic] = {}
        #: Of brokers that were removed from the cluster.
        self._removed = Traffic()
        #: Includes closed connections until the next collection.
        self._open: set[BrokerConnection] = set()
        self._opened = 0
        self._closed = 0
        #: Of connections that are closed.
        self._operations = 0
        self._authenticated = 0
        self.authentication_failures = 0
        #: Their durations in milliseconds.
        self.reauthentications = Distribution()
        self.reauthentication_failures = 0

    def on_connection(
        self, connection: "BrokerConnection", node: object, *, is_authenticated: bool
    ) -> None:
        """Called when a connection is ready. `node`: a broker's id, or a bootstrap address."""
        tag = _tag_of(node)
        traffic = self._by_node.setdefault(tag, Traffic())
        traffic.add(connection.traffic)  # Of the handshake.
        connection.traffic = traffic
        self._open.add(connection)
        self._opened += 1
        self._authenticated += is_authenticated

    def keep_nodes(self, is_known: Callable[[int], bool]) -> None:
        """Removes the metrics of brokers that are not in the cluster anymore."""
        for tag in list(self._by_node):
            if tag != BOOTSTRAP_NODE and not is_known(int(tag.removeprefix("node-"))):
                self._removed.add(self._by_node.pop(tag))

    def collect_readings(self) -> Iterator[Reading]:
        self._remove_closed()
        yield CONNECTIONS.read(len(self._open))
        yield CONNECTIONS_OPENED.read(self._opened)
        yield CONNECTIONS_CLOSED.read(self._closed)
        yield AUTHENTICATIONS.read(self._authenticated)
        yield AUTHENTICATION_FAILURES.read(self.authentication_failures)
        yield REAUTHENTICATIONS.read(self.reauthentications.count)
        yield REAUTHENTICATION_FAILURES.read(self.reauthentication_failures)
        yield REAUTHENTICATION_LATENCIES.read(self.reauthentications)
        operations = sum(connection.operations for connection in self._open)
        yield NETWORK_OPERATIONS.read(self._operations + operations)
        all_traffic = Traffic()
        for traffic in (self._removed, *self._by_node.values()):
            all_traffic.add(traffic)
        yield RECEIVED_BYTES.read(all_traffic.received_bytes)
        yield SENT_BYTES.read(all_traffic.request_sizes.total)
        yield REQUESTS.read(all_traffic.request_sizes.count)
        yield REQUEST_SIZES.read(all_traffic.request_sizes)
        yield RESPONSES.read(all_traffic.responses)
        for tag, traffic in self._by_node.items():
            yield NODE_RECEIVED_BYTES.read(traffic.received_bytes, tag)
            yield NODE_SENT_BYTES.read(traffic.request_sizes.total, tag)
            yield NODE_REQUESTS.read(traffic.request_sizes.count, tag)
            yield NODE_REQUEST_SIZES.read(traffic.request_sizes, tag)
            yield NODE_RESPONSES.read(traffic.responses, tag)
            yield NODE_LATENCIES.read(traffic.latencies, tag)

    def count_in_flight(self) -> int:
        """Returns the number of requests that have no response yet."""
        return sum(connection.in_flight for connection in self._open)

    def _remove_closed(self) -> None:
        for connection in [each for each in self._open if each.is_closed]:
            self._open.remove(connection)
            self._closed += 1
            self._operations += connection.operations


def _tag_of(node: object) -> str:
    return f"node-{node}" if isinstance(node, int) else BOOTSTRAP_NODE
