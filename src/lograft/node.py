"""The composition root: connects the rooms into a node and owns all of its tasks.

`Node` gets its settings and seams as arguments and does not depend on processes or signals, so the
simulator can run many nodes in one event loop. `run` runs one node with the real seams in this
process.
"""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from lograft import __version__
from lograft.api.authentication import ListenerAuthentication
from lograft.api.certificate_principals import CertificatePrincipals
from lograft.api.http_access import ClusterAccess
from lograft.api.router import Router
from lograft.api.security_log import SecurityLog
from lograft.broker.broker import Broker
from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.control.controller import Controller
from lograft.broker.control.expired_tokens import ExpiredTokenRemover
from lograft.broker.control.leader_balancer import LeaderBalancer
from lograft.broker.control.mode_switcher import ModeSwitcher
from lograft.broker.control.no_op_records import NoOpRecordWriter
from lograft.broker.control.registration import (
    CONTROLLER_REGISTRATION_VERSIONS,
    BrokerRegistration,
    controller_registration_request,
)
from lograft.broker.coordinators.producer_ids import ProducerIds
from lograft.broker.links.controller_link import ControllerLink
from lograft.broker.links.logins import NodeLogins
from lograft.broker.links.peers import Peers
from lograft.broker.quorum.formatting import check_identities
from lograft.broker.quorum.metadata_loading import load_metadata
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.broker.quorum.snapshotter import Snapshotter
from lograft.broker.quorum.voter_updater import VoterUpdater
from lograft.broker.readiness import find_unready_reasons as find_broker_reasons
from lograft.broker.record_traces import RecordTraces
from lograft.broker.shared_services import SharedServices
from lograft.consensus.types import VoterEndpoint
from lograft.http.endpoints import (
    LISTENER_NAME,
    HttpEndpoint,
    http_endpoints,
    unencrypted_endpoints,
)
from lograft.http.listener import HttpListener
from lograft.metadata.types import Endpoint as RegisteredEndpoint
from lograft.model.errors import ErrorCode, InvalidInput, LograftError
from lograft.model.exchange import HandlerFactory
from lograft.model.health import NodeIdentity, UnreadyCause, UnreadyReason
from lograft.model.listeners import Endpoint, SecurityProtocol
from lograft.model.metrics import MetricSource, Sample
from lograft.model.seams import Address, DirectoryLock, Runtime, Task, Transport
from lograft.model.security_context import SecurityContext, ServerKey
from lograft.model.settings.authorizer import allows_everyone_without_acl, super_users
from lograft.model.settings.broker import BrokerConfig, keys_of
from lograft.model.settings.effects import NO_EFFECT_WARNING, check_supported, find_without_effect
from lograft.model.settings.kerberos import KerberosLogin
from lograft.model.settings.oauthbearer import OAuthBearerSettings
from lograft.model.settings.otlp import otlp_settings
from lograft.model.types import Offset
from lograft.net.channels import BufferSizes
from lograft.net.listener_set import ListenerSet
from lograft.security.standard_authorizer import StandardAuthorizer
from lograft.storage.log_dirs import LOCK, MetaProperties, write_meta_properties
from lograft.wire.apis import ApiRanges
from lograft.wire.messages.controller_registration import ControllerRegistrationResponse

if TYPE_CHECKING:
    from lograft.net.tls_rotation import TlsTransports

LOGGER: Final = logging.getLogger(__name__)
#: They are renewed months before they expire.
CERTIFICATE_CHECK_SECONDS: Final = 6 * 3600.0


class Node:
    """A node that is a broker, a controller, or both. A broker that is not a controller follows the
    metadata log as an observer.

    `start` opens the log dirs, then the listeners (brokers accept connections but do not handle
    requests yet), reads the metadata log up to the quorum's high watermark, which requires an
    elected leader, registers, recovers the logs, and serves clients. Controllers handle each
    other's requests from the beginning. `stop` does the reverse, so that no record is acknowledged
    after its log has been closed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        halt: Callable[[str], None],
        host_name: str = "localhost",
        interpose: Callable[[Router], HandlerFactory] | None = None,
        api_ranges: ApiRanges | None = None,
        metric_sources: Sequence[MetricSource] = (),
    ) -> None:
        """`halt` is called with a reason when the node cannot continue. `host_name` is advertised
        for listeners that are bound to all interfaces. `metric_sources` has further metrics, such
        as those of the process. For tests, `interpose` wraps the handlers of a listener's
        connections, and `api_ranges` restricts the API versions that the node serves and uses, as
        in an older build."""
        _check_supported(config)
        self._otlp = otlp_settings(config)
        self.config = config
        self._runtime = runtime
        self._halt = halt
        self._host_name = host_name
        self._interpose = interpose
        self._api_ranges = api_ranges
        self._locks: list[DirectoryLock] = []
        self._listeners: ListenerSet | None = None
        self._http: HttpListener | None = None
        #: By listener; the router of a closed listener stays here with its counters.
        self._routers: dict[str, Router] = {}
        self._tasks: list[Task] = []
        self._authentications: list[ListenerAuthentication] = []
        #: In the order of their construction.
        self._metric_sources: list[MetricSource] = [*metric_sources]
        self._tls: TlsTransports | None = None
        self._driver: RaftDriver | None = None
        self._peers: Peers | None = None
        self._shared: SharedServices | None = None
        self._link: ControllerLink | None = None
        self._controller: Controller | None = None
        self._broker: Broker | None = None
        self._registration: BrokerRegistration | None = None
        self._is_stopping = False
        #: None: everybody is allowed everything.
        self._authorizer = authorizer_of(config)

    @cached_property
    def _security_log(self) -> SecurityLog:
        return SecurityLog(self._runtime.clock)

    @property
    def broker(self) -> Broker:
        """The broker; not for nodes that are only controllers."""
        assert self._broker is not None, "not started, or not a broker"
        return self._broker

    @property
    def shared(self) -> SharedServices:
        assert self._shared is not None, "not started"
        return self._shared

    @property
    def link(self) -> ControllerLink:
        """The link to the active controller."""
        assert self._link is not None, "not started"
        return self._link

    @property
    def addresses(self) -> Mapping[str, Address]:
        """The addresses of the open listeners by name, with the ports to which they are bound."""
        return {} if self._listeners is None else self._listeners.addresses

    @property
    def http_urls(self) -> Sequence[str]:
        """Returns the URLs of the HTTP listener, with the ports that were bound."""
        return [] if self._http is None else self._http.urls

    @property
    def identity(self) -> NodeIdentity:
        return NodeIdentity(self.config.node_id, self.shared.cluster_id)

    def find_unready_reasons(self) -> list[UnreadyReason]:
        """Returns why this node cannot serve its clients; empty if it can."""
        if self._is_stopping:
            return [UnreadyReason(UnreadyCause.SHUTTING_DOWN, "the node is shutting down")]
        if self._driver is None or not self._driver.is_ready:
            return [
                UnreadyReason(
                    UnreadyCause.STARTING,
                    "the node has not read the metadata log yet, which requires an active"
                    " controller",
                )
            ]
        reasons = []
        if not self._driver.has_working_leader:
            reasons.append(
                UnreadyReason(
                    UnreadyCause.CONTROLLER_UNKNOWN,
                    "there is no active controller: a majority of the controllers must be running"
                    " and reachable",
                )
            )
        if self._broker is not None and self._registration is not None:
            reasons += find_broker_reasons(self._broker, self._registration)
        return reasons

    def collect_samples(self) -> Iterator[Sample]:
        """Yields the metrics of this node. The node may change between two samples, so that a long
        collection can be interrupted (docs/internals/metrics.md)."""
        for router in list(self._routers.values()):
            yield from router.collect_samples()
        for source in self._metric_sources:
            yield from source.collect_samples()

    async def start(self) -> None:
        _warn_of_settings_without_effect(self.config)
        _warn_of_unencrypted_logins(self.config)
        if any(security.uses_tls for security in self.config.used_listeners.values()):
            # Stores that cannot be read must be reported before anything is written.
            self._tls_transports()
        identities = await self._runtime.workers.run(self._open_log_dirs)
        metadata_dir = identities[self.config.metadata_log_dir]
        driver = await self._start_quorum(metadata_dir)
        shared = self._make_shared(driver, identities)
        if self.config.is_broker:
            self._broker = self._make_broker(shared, identities)
        self._snapshotter = Snapshotter(self._runtime, driver, shared.metadata)
        driver.add_listener(shared.metadata.on_committed)
        driver.add_snapshot_listener(shared.metadata.on_snapshot)
        driver.add_listener(self._snapshotter.on_committed)
        # Before anything is written: if a port is in use or a certificate invalid, nothing changes.
        listeners = await self._listen(shared)
        await self._open_http()
        self._start_export(shared)
        driver.endpoints = tuple(
            VoterEndpoint(endpoint.name, endpoint.host, endpoint.port)
            for endpoint in self._bound_endpoints(self.config.advertised_controller_listeners)
        )
        driver.start()
        listeners.serve("controller")
        await driver.wait_ready()
        if self._authorizer is not None:
            self._authorizer.complete_load()
        self._spawn(self._snapshotter.run(), name="metadata snapshots")
        controller_start = self._spawn(
            self._start_controller(driver), name="controller registration"
        )
        if self._broker is not None:
            await self._register_broker(self._broker)
        self._follow_tls_settings(shared.metadata)
        if self.config.is_broker:
            listeners.serve("broker")
        await controller_start
        shared.metadata.warn_of_unenforced_state()
        shared.metadata.warn_of_ignored_settings()

    async def stop(self) -> None:
        self._is_stopping = True
        if self._broker is not None and self.config.controlled_shutdown_enable:
            self._broker.replicas.raft.hand_over()
        if self._registration is not None:
            await self._registration.shut_down()
        if self._driver is not None:
            # Elects the next controller while this node can still vote.
            await self._driver.resign()
        if self._listeners is not None:
            await self._listeners.stop()
        if self._http is not None:
            self._http.stop()
        for authentication in self._authentications:
            authentication.close()
        for task in self._tasks:
            task.cancel()
        if self._broker is not None and self._broker.traces is not None:
            self._broker.traces.close()
        if self._broker is not None:
            await self._broker.stop()
        if self._driver is not None:
            await self._driver.stop()
        if self._peers is not None:
            self._peers.close()
        for lock in self._locks:
            lock.release()

    def follow_certificates(self, renew: Callable[[], bool]) -> None:
        """Calls `renew`, a worker's job, every few hours. If it returns True, it has replaced
        files of certificates, which the node then uses for new connections."""
        self._spawn(self._renew_certificates(renew), name="certificate renewal")

    async def _renew_certificates(self, renew: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(CERTIFICATE_CHECK_SECONDS)
            try:
                is_replaced = await self._runtime.workers.run(renew)
            except (LograftError, OSError) as error:
                LOGGER.error("could not renew the certificates: %s", error)
                continue
            if is_replaced and self._tls is not None:
                self._tls.reload(self._effective_config())

    # ── the steps of a start ─────────────────────────────────────────────────────────────────

    def _open_log_dirs(self) -> dict[str, MetaProperties]:
        """Locks the log dirs that are usable and returns their meta.properties. Blocks."""
        disk, config = self._runtime.disk, self.config
        identities = check_identities(disk, config)
        for path, identity in list(identities.items()):
            try:
                self._locks.append(disk.lock(f"{path}/{LOCK}"))
                if identity.directory_id is None:
                    # Formatted by a version without directory ids.
                    identities[path] = replace(
                        identity, directory_id=self._runtime.randomness.uuid()
                    )
                    write_meta_properties(disk, path, identities[path])
            except BlockingIOError:
                raise InvalidInput(
                    f"{path} is in use by another process: stop that process, or use another log"
                    " directory"
                ) from None
            except OSError as error:
                if path == config.metadata_log_dir:
                    raise
                LOGGER.error("log dir %s stays offline: %s", path, error)
                del identities[path]
        return identities

    async def _start_quorum(self, metadata_dir: MetaProperties) -> RaftDriver:
        assert metadata_dir.directory_id is not None
        load = partial(
            load_metadata,
            self._runtime.disk,
            self.config,
            directory_id=metadata_dir.directory_id,
            now_ms=self._runtime.clock.wall_ms(),
        )
        loaded = await self._runtime.workers.run(load)
        for reason in loaded.damaged:
            LOGGER.error("cannot read a metadata snapshot: %s", reason)
        self._peers = Peers(
            self._runtime,
            client_id=f"lograft-{self.config.node_id}",
            transport_of=self._transport_of,
            logins=NodeLogins(
                self._runtime, self._effective_config, initiate_kerberos=_initiate_kerberos
            ),
            ranges=self._api_ranges,
        )
        self._driver = RaftDriver(
            self._runtime,
            loaded,
            self.config,
            peers=self._peers,
            cluster_id=metadata_dir.cluster_id,
        )
        self._metric_sources += [self._peers, self._driver]
        self._bootstrap = loaded.bootstrap
        return self._driver

    def _make_shared(
        self, driver: RaftDriver, identities: Mapping[str, MetaProperties]
    ) -> SharedServices:
        """Creates the services that all nodes have, the controller if this node is one, and the
        link to the active controller."""
        config = self.config
        assert self._peers is not None
        metadata = ClusterMetadata(config, authorizer=self._authorizer)
        cluster_id = identities[config.metadata_log_dir].cluster_id
        if config.is_controller:
            self._controller = Controller(
                self._runtime,
                driver,
                metadata,
                cluster_id=cluster_id,
                bootstrap=self._bootstrap,
            )
            self._metric_sources.append(self._controller)
        shared = self._shared = SharedServices(
            self._runtime,
            metadata,
            cluster_id=cluster_id,
            controller=self._controller,
            quorum=driver,
            peers=self._peers,
        )
        listener = config.controller_listener_names[0]
        local_router = None
        if config.is_controller:
            local_router = Router(
                shared,
                None,
                listener=listener,
                role="controller",
                quotas=shared.quotas,
                security_log=self._security_log,
                authorizer=self._authorizer,
            )
        self._link = ControllerLink(
            self._runtime, driver, self._peers, listener=listener, local_controller=local_router
        )
        self._metric_sources += [shared, self._link]
        return shared

    def _make_broker(
        self, shared: SharedServices, identities: Mapping[str, MetaProperties]
    ) -> Broker:
        config, link = self.config, self.link
        directory_ids = {
            path: identity.directory_id
            for path, identity in identities.items()
            if identity.directory_id is not None and path in config.log_dirs
        }
        registration = self._registration = BrokerRegistration(
            self._runtime,
            config,
            link,
            cluster_id=shared.cluster_id,
            directory_ids=directory_ids.values(),
            metadata=shared.metadata,
            halt=self._halt,
        )
        producer_ids = ProducerIds(
            config.node_id, broker_epoch=registration.current_epoch, link=link
        )
        broker = Broker(
            shared,
            directory_ids=directory_ids,
            link=link,
            registration=registration,
            producer_ids=producer_ids,
            halt=self._halt,
        )
        if self._otlp is not None and self._otlp.exports_traces:
            broker.traces = RecordTraces(self._runtime, self._otlp)
        router = Router(
            shared, broker, listener=config.inter_broker_listener_name, role="broker", link=link
        )
        broker.brokers.call_local = router.call
        self._metric_sources += [registration, producer_ids, broker]
        return broker

    async def _open_http(self) -> None:
        endpoints = http_endpoints(self.config)
        access = await self._make_http_access() if endpoints else None
        self._http = HttpListener(
            self._runtime, self, transport_of=self._http_transport, access=access
        )
        self._metric_sources.append(self._http)
        await self._http.open(endpoints)
        for endpoint in unencrypted_endpoints(endpoints):
            LOGGER.warning(
                "the HTTP listener %s does not encrypt: passwords and tokens can be read on the"
                " network; use an https URL unless the network is trusted",
                endpoint.url(endpoint.address),
            )

    async def _make_http_access(self) -> ClusterAccess | None:
        """Returns None if HTTP has no authentication."""
        if not self.config.lograft_http_authentication_enable:
            return None
        authentication = ListenerAuthentication(
            self.shared, LISTENER_NAME, self._security_log, read_key_set=_read_key_set
        )
        self._authentications.append(authentication)
        await authentication.load_keys()
        return ClusterAccess(authentication, self._authorizer)

    def _http_transport(self, endpoint: HttpEndpoint) -> Transport:
        if not endpoint.uses_tls:
            return self._runtime.transport
        return self._tls_transports().open_fixed(LISTENER_NAME, self.config)

    def _start_export(self, shared: SharedServices) -> None:
        """Starts to send metrics and spans to an OpenTelemetry collector, if one is configured."""
        settings = self._otlp
        if settings is None:
            return
        # Imported here because most nodes export nothing.
        from lograft.telemetry.exporter import OtlpExporter
        from lograft.wire.otlp_requests import Scope

        resource = (
            ("service.name", "lograft"),
            ("service.namespace", shared.cluster_id),
            ("service.instance.id", str(self.config.node_id)),
            ("service.version", __version__),
        )
        traces = None if self._broker is None else self._broker.traces
        exporter = OtlpExporter(
            self._runtime,
            settings,
            Scope("lograft", __version__, resource),
            collect_samples=self.collect_samples,
            spans=traces,
        )
        self._metric_sources.append(exporter)
        if settings.metrics_interval_ms:
            self._spawn(exporter.export_metrics(), name="export of metrics")
        if traces is not None:
            self._spawn(exporter.export_spans(), name="export of spans")

    async def _listen(self, shared: SharedServices) -> ListenerSet:
        def handlers(endpoint: Endpoint) -> HandlerFactory:
            role = listeners.role_of(endpoint.name)
            router = Router(
                shared,
                self._broker if role == "broker" else None,
                listener=endpoint.name,
                role=role,
                frame_bytes_max=self.config.socket_request_max_bytes,
                link=self.link,
                ranges=self._api_ranges,
                quotas=shared.quotas,
                security_log=self._security_log,
                authentication=authentication_of(endpoint),
                certificates=certificates_of(endpoint),
                authorizer=self._authorizer,
            )
            self._routers[endpoint.name] = router
            return router.accept if self._interpose is None else self._interpose(router)

        def certificates_of(endpoint: Endpoint) -> CertificatePrincipals | None:
            if not endpoint.security.uses_tls:
                return None
            return CertificatePrincipals(shared.config, endpoint.name, self._security_log)

        def authentication_of(endpoint: Endpoint) -> ListenerAuthentication | None:
            if not endpoint.security.uses_sasl:
                return None
            authentication = ListenerAuthentication(
                shared,
                endpoint.name,
                self._security_log,
                read_key_set=_read_key_set,
                load_server_key=_load_server_key,
            )
            self._authentications.append(authentication)
            return authentication

        listeners = ListenerSet(
            self._runtime,
            self.config,
            handlers=handlers,
            transport_of=self._transport_at,
            address_rates=shared.quotas.connection_rates,
        )
        self._listeners = listeners
        self._metric_sources.append(listeners)
        await listeners.open()
        for authentication in self._authentications:
            await authentication.load_keys()
        metadata = shared.metadata
        metadata.change_checks.append(self._check_new_listeners)
        metadata.change_checks.append(self._check_logins)
        metadata.on_config_changed.append(self._follow_listener_settings)
        metadata.apply_failures.append(self._find_apply_failures)
        return listeners

    def _follow_listener_settings(self, _: BrokerConfig, new: BrokerConfig) -> None:
        assert self._listeners is not None
        self._listeners.follow(new)

    def _find_apply_failures(self) -> Iterator[str]:
        """Yields the reasons why effective settings of listeners could not be applied."""
        if self._listeners is not None:
            yield from self._listeners.failures
        if self._tls is not None:
            yield from self._tls.failures

    def _check_new_listeners(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Rejects new listeners whose certificates cannot be used."""
        existing = {endpoint.name for endpoint in old.listeners}
        for endpoint in new.listeners:
            if endpoint.name not in existing and endpoint.security.uses_tls:
                self._tls_transports().check_new(endpoint.name, new)

    def _check_logins(self, _: BrokerConfig, new: BrokerConfig) -> None:
        for authentication in self._authentications:
            authentication.check_change(new)

    def _tls_transports(self) -> "TlsTransports":
        if self._tls is None:
            from lograft.net.tls_rotation import TlsTransports

            self._tls = TlsTransports(self._runtime.transport, self.config)
            self._metric_sources.append(self._tls)
        return self._tls

    def _transport_at(self, endpoint: Endpoint, config: BrokerConfig) -> Transport:
        """Returns the transport that accepts connections at a listener, which dynamic settings may
        have added."""
        if not endpoint.security.uses_tls:
            return self._runtime.transport
        return self._tls_transports().open(endpoint.name, config)

    def _transport_of(self, listener: str) -> Transport:
        """Returns the transport that connects to this listener of other nodes."""
        security = self.config.listener_security.get(listener.upper())
        if self._tls is None or security is None or not security.uses_tls:
            return self._runtime.transport
        return self._tls.transport(listener.upper())

    def _effective_config(self) -> BrokerConfig:
        """Returns the configuration with the dynamic settings, as soon as they are known."""
        return self.config if self._shared is None else self._shared.config

    def _follow_tls_settings(self, metadata: ClusterMetadata) -> None:
        """Applies the dynamic TLS settings, now and when they change."""

        def check(config: BrokerConfig, named: Collection[str]) -> None:
            if self._tls is not None:
                self._tls.check(config, named)

        def follow(_: BrokerConfig, new: BrokerConfig) -> None:
            if self._tls is not None:
                self._tls.reload(new)

        if self._tls is not None:
            self._tls.reload(metadata.config, is_start=True)
        metadata.file_checks.append(check)
        metadata.on_config_changed.append(follow)

    async def _start_controller(self, driver: RaftDriver) -> None:
        """Starts the controller, if this node is one, and registers it with the active one."""
        if self._controller is None:
            return
        assert self._peers is not None
        self._spawn(self._controller.run(), name="controller")
        balancer = LeaderBalancer(self._runtime, self.config, self._controller)
        self._metric_sources.append(balancer)
        self._spawn(balancer.run(), name="leader balancer")
        switcher = ModeSwitcher(self._runtime, self._controller, self._peers, config=self.config)
        self._controller.hand_over = switcher.hand_over
        self._spawn(switcher.run(), name="mode switches")
        no_op_writer = NoOpRecordWriter(driver, self._controller, self.config)
        self._spawn(no_op_writer.run(), name="no-op records")
        token_remover = ExpiredTokenRemover(self._controller, self.config, self._runtime.clock)
        self._spawn(token_remover.run(), name="expired delegation tokens")
        voter_updater = VoterUpdater(driver, self._peers, self.config)
        self._spawn(voter_updater.run(), name="voter updater")
        reply = await self.link.request(
            controller_registration_request(
                self.config,
                incarnation_id=self._runtime.randomness.uuid(),
                endpoints=self._bound_endpoints(self.config.advertised_controller_listeners),
            ),
            CONTROLLER_REGISTRATION_VERSIONS,
            ControllerRegistrationResponse,
        )
        if reply.error_code:
            code = ErrorCode(reply.error_code)
            raise LograftError(
                f"the active controller rejected the registration of this controller: {code.name}"
                f" {reply.error_message}"
            )

    async def _register_broker(self, broker: Broker) -> None:
        """Registers the broker, recovers its logs, and returns when the controller has unfenced
        it."""
        registration = self._registration
        assert registration is not None
        registration.prepare(
            broker.logs,
            endpoints=self._bound_endpoints(self.config.advertised_listeners),
            previous_epoch=await broker.logs.read_previous_epoch(),
        )
        # Kafka's brokers give up after a minute by default; Lograft's wait without a limit.
        is_limited = "initial.broker.registration.timeout.ms" in self.config.raw
        limit_ms = self.config.initial_broker_registration_timeout_ms if is_limited else None
        epoch = await registration.register(timeout_ms=limit_ms)
        # The leaders in an image older than the registration are out of date.
        await broker.metadata.wait_offset(Offset(epoch))
        await broker.load(epoch)
        await broker.logs.mark_running(epoch)
        assert self._peers is not None
        broker.replicas.start(self._peers, broker.link)
        self._spawn(registration.run(), name="broker registration")
        self._spawn(broker.assigner.run(), name="directory assignment")
        await registration.wait_unfenced()

    def _bound_endpoints(self, endpoints: tuple[Endpoint, ...]) -> list[RegisteredEndpoint]:
        """Returns advertised endpoints, with the bound port instead of port 0."""
        return [
            RegisteredEndpoint(
                endpoint.name,
                endpoint.host or self._host_name,
                endpoint.port or self.addresses[endpoint.name].port,
                endpoint.security,
            )
            for endpoint in endpoints
        ]

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> Task:
        task = self._runtime.spawn(work, name=name)
        self._tasks.append(task)
        return task


async def _read_key_set(runtime: Runtime, settings: OAuthBearerSettings) -> bytes:
    # Imported here because most nodes need neither TLS nor h11.
    from lograft.net.identity_providers import read_key_set

    return await read_key_set(runtime, settings)


def _initiate_kerberos(login: KerberosLogin, host: str) -> tuple[SecurityContext, bytes]:
    """A worker's job."""
    from lograft.runtime.kerberos import initiate

    return initiate(login, host)


def _load_server_key(principal: str, keytab_path: str) -> ServerKey:
    # Imported here because most nodes have no Kerberos library.
    from lograft.runtime.kerberos import Acceptor

    return Acceptor(principal, keytab_path)


def _check_supported(config: BrokerConfig) -> None:
    """Raises InvalidConfig for settings and listeners that Lograft does not support."""
    check_supported(keys_of(config.raw), config.raw)
    http_endpoints(config)


def authorizer_of(config: BrokerConfig) -> StandardAuthorizer | None:
    if not config.authorizer_class_name:
        return None
    return StandardAuthorizer(
        super_users(config.raw), allow_if_no_acl=allows_everyone_without_acl(config.raw)
    )


def _warn_of_unencrypted_logins(config: BrokerConfig) -> None:
    names = [
        endpoint.name
        for endpoint in config.listeners
        if endpoint.security is SecurityProtocol.SASL_PLAINTEXT
    ]
    if names:
        LOGGER.warning(
            "SASL_PLAINTEXT does not encrypt listener %s: others on the network can read records,"
            " and passwords of PLAIN; use SASL_SSL where the network is not trusted",
            ", ".join(names),
        )


def _warn_of_settings_without_effect(config: BrokerConfig) -> None:
    names = find_without_effect(keys_of(config.raw), config.raw)
    if names:
        LOGGER.warning(NO_EFFECT_WARNING, ", ".join(names))


# ── a node as a process ──────────────────────────────────────────────────────────────────────


class _Stopping(Exception):
    """Ends the task group, and with it all tasks of the node."""


def run(config: BrokerConfig, on_serving: Callable[[Node], None]) -> None:
    """Runs a node until SIGINT or SIGTERM. Raises LograftError or OSError if it cannot continue."""
    from lograft.runtime import event_loop

    event_loop.run(_serve(config, on_serving))


async def _serve(config: BrokerConfig, on_serving: Callable[[Node], None]) -> None:
    from lograft.net.sockets import SocketTransport
    from lograft.runtime.process_metrics import ProcessMetrics
    from lograft.runtime.system import system_runtime
    from lograft.runtime.workers import ThreadWorkers

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    halted: list[str] = []

    def halt(reason: str) -> None:
        halted.append(reason)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    workers = ThreadWorkers()
    try:
        async with asyncio.TaskGroup() as group:
            runtime = system_runtime(
                transport=SocketTransport(_buffer_sizes_of(config), backlog=_backlog_of(config)),
                workers=workers,
                task_group=group,
            )
            process = ProcessMetrics(runtime.clock)
            runtime.spawn(process.measure_loop_delay(), name="event loop delay")
            node = Node(
                config,
                runtime,
                halt=halt,
                host_name=socket.gethostname(),
                metric_sources=[process],
            )
            await _start_unless_stopped(node, stop)
            # The objects of the start live as long as the process: exclude them from collections.
            gc.collect()
            gc.freeze()
            on_serving(node)
            await stop.wait()
            if not halted:
                LOGGER.info("shutting down")
                await node.stop()
            raise _Stopping
    except BaseExceptionGroup as group_of_errors:
        error = _first_error(group_of_errors)
        if error is None and halted:
            error = LograftError(f"the node is stopping: {halted[0]}")
        if error is not None:
            raise error from None
        LOGGER.info("shut down completed")
    finally:
        workers.close()


def _backlog_of(config: BrokerConfig) -> int | None:
    """Returns the configured backlog; None selects the transport's default, because Kafka's default
    of 50 is too small when many clients reconnect at once."""
    is_set = "socket.listen.backlog.size" in config.raw
    return config.socket_listen_backlog_size if is_set else None


def _buffer_sizes_of(config: BrokerConfig) -> BufferSizes:
    """Returns the socket buffer sizes. Kafka's small default for sending keeps unsent data in the
    CPU's cache; the receive buffer is left to the kernel unless it is configured."""
    is_set = "socket.receive.buffer.bytes" in config.raw
    return BufferSizes(
        send_bytes=config.socket_send_buffer_bytes,
        receive_bytes=config.socket_receive_buffer_bytes if is_set else -1,
    )


async def _start_unless_stopped(node: Node, stop: asyncio.Event) -> None:
    """Starts the node; raises _Stopping when `stop` is set, since recovery may take minutes. The
    next start repeats the recovery."""
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(node.start(), name="start")
        stopping = group.create_task(stop.wait(), name="stop")
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            raise _Stopping


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Returns the error that ended the tasks; None if they were stopped by _Stopping."""
    for error in group.exceptions:
        found = _first_error(error) if isinstance(error, BaseExceptionGroup) else error
        if found is not None and not isinstance(found, _Stopping):
            return found
    return None
