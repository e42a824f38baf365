"""Compares every response to a client with the ACLs in the image of the node that sent it.

A1: an item is not served if all ACLs denied it which the node's image contained from the arrival of
the request to its response. A2: an item is not denied if all of them allowed it. A request that
waits while the ACLs change may be decided either way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from campaigns.acls.decisions import is_allowed
from campaigns.acls.plan import PRINCIPALS
from campaigns.acls.requests import DENIED, Item, Needs, codes_of, needs_of
from lograft.api.router import Router, Session
from lograft.broker.shared_services import SharedServices
from lograft.metadata.delta import MetadataDelta
from lograft.model.exchange import (
    EncodedResponse,
    FrameHandler,
    HandlerFactory,
    PendingReply,
    Reply,
)
from lograft.model.seams import Channel, FileSlice, Part
from lograft.security.acls import Acl
from lograft.testing.faults import wait_response
from lograft.wire.apis import API_VERSIONS, response_class, response_header_version
from lograft.wire.codec import read
from lograft.wire.headers import RequestHeader, read_request_header, read_response_header

#: Size of the size field of a response.
SIZE_BYTES: Final = 4

Report = Callable[[str, str], None]


@dataclass(slots=True)
class AclFigures:
    #: Changes of the ACLs, counted at every node.
    changes: int = 0
    #: Items of requests that had to be served or denied.
    allowed: int = 0
    denied: int = 0
    fast: int = 0


class NodeAcls:
    """The ACLs of one life of a node: every state that its image had."""

    def __init__(self, shared: SharedServices, figures: AclFigures) -> None:
        self.shared = shared
        self.figures = figures
        self.states: list[list[Acl]] = [list(shared.image.acls.values())]
        shared.metadata.on_changed.append(self._on_changed)

    def _on_changed(self, delta: MetadataDelta) -> None:
        if delta.acls:
            self.figures.changes += 1
            self.states.append(list(self.shared.image.acls.values()))

    def name_of(self, topic_id: Any) -> str:
        topic = self.shared.image.topics.get(topic_id)
        return "" if topic is None else topic.name


class AclWatch:
    """One for a run. `interpose` is the argument of a node's `Host`."""

    def __init__(self, report: Report, *, allow_if_no_acl: bool) -> None:
        self.figures = AclFigures()
        self._report = report
        self._allow_if_no_acl = allow_if_no_acl
        self._nodes: dict[str, NodeAcls] = {}

    def interpose(self, node: str) -> Callable[[Router], HandlerFactory]:
        def wrap(router: Router) -> HandlerFactory:
            acls = self._nodes.get(node)
            if acls is None or acls.shared is not router.shared:
                acls = self._nodes[node] = NodeAcls(router.shared, self.figures)

            def accept(channel: Channel) -> FrameHandler:
                principal = PRINCIPALS.get(channel.peer.host)
                if principal is None or router.role != "broker":
                    return router.accept(channel)
                session = router(channel)
                # As for a listener whose clients have certificates.
                session.authenticate_as(principal)
                return WatchedSession(self, node, acls, router, session, principal, channel)

            return accept

        return wrap

    def check(self, request: "WatchedRequest", codes: dict[Item, int]) -> None:
        states = request.acls.states[request.first_state :]
        for item, needs in request.needs.items():
            decisions = {
                all(
                    is_allowed(
                        state,
                        request.principal,
                        request.host,
                        need,
                        allow_if_no_acl=self._allow_if_no_acl,
                    )
                    for need in needs
                )
                for state in states
            }
            code = codes.get(item)
            if decisions == {False}:
                self.figures.denied += 1
                if code is not None and code not in DENIED:
                    self._report("A1", f"{request} {item} is denied, but was answered with {code}")
            elif decisions == {True}:
                self.figures.allowed += 1
                if code in DENIED:
                    self._report("A2", f"{request} {item} is allowed, but was denied with {code}")


class WatchedRequest:
    """A request of a client from its arrival to its response."""

    def __init__(self, session: "WatchedSession", header: RequestHeader, needs: Needs) -> None:
        self.header = header
        self.needs = needs
        self.node = session.node
        self.acls = session.acls
        self.principal = session.principal
        self.host = session.host
        #: The state of the ACLs on arrival.
        self.first_state = len(self.acls.states) - 1

    def __str__(self) -> str:
        name = API_VERSIONS[self.header.api_key].name
        return f"{self.node}: {name} of {self.principal} at {self.host}:"


class WatchedSession:
    """The frame handler of a client's connection."""

    def __init__(
        self,
        watch: AclWatch,
        node: str,
        acls: NodeAcls,
        router: Router,
        inner: Session,
        principal: str,
        channel: Channel,
    ) -> None:
        self._watch = watch
        self.node = node
        self.acls = acls
        self.principal = principal
        self.host = channel.peer.host
        self._router = router
        self._inner = inner

    @property
    def frame_bytes_max(self) -> int:
        return self._inner.frame_bytes_max

    @frame_bytes_max.setter
    def frame_bytes_max(self, limit: int) -> None:
        self._inner.frame_bytes_max = limit

    @property
    def received_ns(self) -> int:
        return self._inner.received_ns

    @received_ns.setter
    def received_ns(self, received_ns: int) -> None:
        self._inner.received_ns = received_ns

    def handle_frame(self, frame: memoryview) -> Reply:
        header = read_request_header(frame)
        route = self._router.route(header.api_key)
        request, _ = read(route.request_kind, header.api_version, frame, header.body_position)
        topics = [topic.name for topic in self.acls.shared.image.topics.values()]
        needs = needs_of(request, topics, self.acls.name_of)
        if not needs:
            return self._inner.handle_frame(frame)
        watched = WatchedRequest(self, header, needs)
        served = self._fast_requests()
        reply = self._inner.handle_frame(frame)
        self._watch.figures.fast += self._fast_requests() - served
        if reply is None or isinstance(reply, bytes | EncodedResponse):
            self._check(watched, reply)
            return reply
        return PendingReply(self._check_later(watched, reply), reply.allows_pipelining)

    def _fast_requests(self) -> int:
        fast = self._router.fast_paths
        return 0 if fast is None else fast.produce.served + fast.fetch.served

    async def _check_later(self, watched: WatchedRequest, reply: Reply) -> EncodedResponse | None:
        response = await wait_response(reply)
        self._check(watched, response)
        return response

    def _check(self, watched: WatchedRequest, reply: bytes | EncodedResponse | None) -> None:
        if reply is None:
            return
        parts = [reply] if isinstance(reply, bytes) else reply.parts
        data = b"".join(map(_read_part, parts))[SIZE_BYTES:]
        key, version = watched.header.api_key, watched.header.api_version
        _, position = read_response_header(data, response_header_version(key, version))
        response, _ = read(response_class(key), version, data, position)
        self._watch.check(watched, codes_of(response, self.acls.name_of))

    def on_frames_handled(self) -> None:
        self._inner.on_frames_handled()

    def on_closed(self) -> None:
        self._inner.on_closed()


def _read_part(part: Part) -> bytes:
    if isinstance(part, FileSlice):
        return part.file.pread(part.size, part.position)
    return bytes(part)
