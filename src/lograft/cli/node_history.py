"""Reads the last hour of nodes from their HTTP listeners, for `lograft top` and `lograft doctor`.

Nodes of other machines are reached at a URL, often of a tunnel, that the user gives. The user and
the password of the client are those for HTTP. Without URLs, the setting `lograft.http.listeners` of
each broker tells where to look on this machine; a node that responds there and is not that broker
of that cluster is not used.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from lograft.cli.cluster import registered_brokers
from lograft.client.admin import Admin, broker_resource
from lograft.client.administering.settings import AdminSettings
from lograft.client.tls import tls_context
from lograft.model.errors import InvalidInput, LograftError
from lograft.model.hosts import is_loopback

SETTING: Final = "lograft.http.listeners"
PATH: Final = "/v1/history"
TIMEOUT_SECONDS: Final = 5.0
#: With these, the user and the password of the client are valid for HTTP, too.
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DENIED: Final = {
    401: "the node needs a user and a password, such as those of a context",
    403: "the user lacks the permission DESCRIBE on the cluster",
    429: "too many failed logins from this address",
}
#: The history of an hour has less than 2 MB.
RESPONSE_BYTES_MAX: Final = 16 << 20

Values = tuple[float | None, ...]


class HistoryUnavailable(LograftError):
    """A node did not return its history; the message has the reason."""


@dataclass(frozen=True, slots=True)
class NodeHistory:
    url: str
    node_id: int
    cluster_id: str
    step_ms: int
    end_ms: int
    #: Values of the whole node by the name of the series, oldest first.
    series: Mapping[str, Values]
    #: By the name of the series and the topic or group.
    topics: Mapping[str, Mapping[str, Values]]
    groups: Mapping[str, Mapping[str, Values]]

    def last(self, name: str) -> float | None:
        """The value of the last point; None if there is none."""
        values = self.series.get(name, ())
        return values[-1] if values else None


@dataclass(frozen=True, slots=True)
class Histories:
    nodes: tuple[NodeHistory, ...]
    #: Nodes without a history, by name, and the reasons.
    missing: Mapping[str, str]


class HistoryReader:
    """Finds the nodes once, or again when one does not respond, and reads their histories."""

    def __init__(self, admin: Admin, urls: Sequence[str]) -> None:
        """`urls`: where nodes serve HTTP; empty to find out."""
        self._admin = admin
        self._urls = [check_url(url) for url in urls]

    async def read(self, *, points: int) -> Histories:
        if self._urls:
            sources: dict[str, tuple[int | None, str | HistoryUnavailable]]
            sources = {url: (None, url) for url in self._urls}
            cluster_id = None
        else:
            cluster_id, sources = await self._find_urls()
        results = await asyncio.gather(
            *(self._read_source(source, points) for _, source in sources.values()),
            return_exceptions=True,
        )
        nodes: dict[int, NodeHistory] = {}
        missing = {}
        for (name, (node_id, _)), result in zip(sources.items(), results, strict=True):
            if isinstance(result, NodeHistory):
                if node_id is not None and (result.node_id, result.cluster_id) != (
                    node_id,
                    cluster_id,
                ):
                    missing[name] = (
                        f"node {result.node_id} of cluster {result.cluster_id} responds at"
                        f" {result.url}"
                    )
                else:
                    nodes[result.node_id] = result
            elif isinstance(result, HistoryUnavailable):
                missing[name] = str(result)
            else:
                raise result
        return Histories(tuple(nodes[node] for node in sorted(nodes)), missing)

    async def _find_urls(
        self,
    ) -> tuple[str, dict[str, tuple[int | None, str | HistoryUnavailable]]]:
        cluster = await registered_brokers(self._admin)
        sources: dict[str, tuple[int | None, str | HistoryUnavailable]] = {}
        for broker in cluster.brokers:
            source: str | HistoryUnavailable
            if broker.is_fenced:
                source = HistoryUnavailable("the broker is offline")
            else:
                source = await self._find_url(broker.id)
            sources[f"broker {broker.id}"] = (broker.id, source)
        return cluster.cluster_id, sources

    async def _find_url(self, broker: int) -> str | HistoryUnavailable:
        try:
            resource = broker_resource(broker)
            found = await self._admin.describe_configs([resource], names=[SETTING])
        except LograftError as error:
            return HistoryUnavailable(str(error))
        entry = found[resource].get(SETTING)
        if entry is None:
            return HistoryUnavailable("the broker is not a Lograft node")
        urls = [url.strip() for url in (entry.value or "").split(",") if url.strip()]
        usable = [url for url in urls if urlsplit(url).port]
        if usable:
            return usable[0].rstrip("/")
        if urls:
            return HistoryUnavailable(
                f"the port of {urls[0]} was chosen by the system: name the URL with --http"
            )
        return HistoryUnavailable(f"{SETTING} is not set")

    async def _read_source(self, source: str | HistoryUnavailable, points: int) -> NodeHistory:
        if isinstance(source, HistoryUnavailable):
            raise source
        context = None
        if source.startswith("https:"):
            context = tls_context(self._admin.settings)
        login = authorization_of(self._admin.settings, source)
        return await asyncio.to_thread(read_history, source, points, context, login)


def check_url(url: str) -> str:
    """Returns the URL without a slash at its end. Raises InvalidInput."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise InvalidInput(f"--http {url}: specify URLs such as http://localhost:9094")
    return url.rstrip("/")


def authorization_of(settings: AdminSettings, url: str) -> str | None:
    """Returns the header for the client's user and password; None if the client has none, or if it
    would be sent over the network without encryption."""
    if not settings.uses_sasl or settings.sasl_mechanism not in _PASSWORD_MECHANISMS:
        return None
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        return None
    login = settings.sasl_credentials()
    return "Basic " + base64.b64encode(f"{login.user}:{login.password}".encode()).decode()


def read_history(
    url: str,
    points: int,
    context: ssl.SSLContext | None = None,
    authorization: str | None = None,
) -> NodeHistory:
    """Raises HistoryUnavailable."""
    request = Request(f"{url}{PATH}?points={points}")
    if authorization is not None:
        # Not sent to the target of a redirect.
        request.add_unredirected_header("Authorization", authorization)
    # Loopback addresses are never reached through a proxy.
    opener = build_opener(ProxyHandler({}), *([HTTPSHandler(context=context)] if context else []))
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            body = response.read(RESPONSE_BYTES_MAX)
        return parse_history(url, json.loads(body))
    except HTTPError as error:
        denied = _DENIED.get(error.code, f"HTTP status {error.code}")
        raise HistoryUnavailable(f"{url}: {denied}") from None
    except URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise HistoryUnavailable(f"{url}: {reason}") from None
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        text = str(error) or type(error).__name__
        raise HistoryUnavailable(f"{url} does not return a history: {text}") from None


def parse_history(url: str, page: Any) -> NodeHistory:
    series: dict[str, Values] = {}
    topics: dict[str, dict[str, Values]] = {}
    groups: dict[str, dict[str, Values]] = {}
    for each in page["series"]:
        name, values = str(each["name"]), _numbers(each["values"])
        if "topic" in each:
            topics.setdefault(name, {})[str(each["topic"])] = values
        elif "group" in each:
            groups.setdefault(name, {})[str(each["group"])] = values
        else:
            series[name] = values
    return NodeHistory(
        url=url,
        node_id=int(page["node_id"]),
        cluster_id=str(page["cluster_id"]),
        step_ms=int(page["step_ms"]),
        end_ms=int(page["end_ms"]),
        series=series,
        topics=topics,
        groups=groups,
    )


def _numbers(values: Sequence[Any]) -> Values:
    return tuple(None if value is None else float(value) for value in values)
