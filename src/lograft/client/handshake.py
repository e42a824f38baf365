"""Opens connections: connects, negotiates API versions and authenticates."""

from typing import Final

from lograft import __version__
from lograft.client.authentication import authenticate
from lograft.client.broker_connection import FRAME_BYTES_MAX, BrokerConnection, VersionRange
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import ConnectionFailed, OutcomeUnknown
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address, Runtime, Transport
from lograft.wire.apis import API_VERSIONS_KEY, spec_of
from lograft.wire.client_connection import ClientConnection
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_NAME: Final = "lograft"
#: Prefix of the names of features that only Lograft brokers have.
_LOGRAFT_FEATURES: Final = "lograft."


async def open_connection(
    runtime: Runtime,
    transport: Transport,
    address: Address,
    settings: ClientSettings,
    *,
    setup_timeout_ms: int,
) -> BrokerConnection:
    """Returns a connection that is ready for requests. Raises ConnectionFailed, or its subclass
    AuthenticationFailed."""
    try:
        channel = await transport.connect(address, timeout_ms=setup_timeout_ms)
    except ConnectionRefusedError:
        raise ConnectionFailed(
            address,
            "connect",
            "connection refused",
            "is the broker running, and is the port right?",
        ) from None
    except OSError as error:
        raise ConnectionFailed(address, "connect", str(error)) from None
    frames = ClientConnection(channel, address, frame_bytes_max=FRAME_BYTES_MAX)
    connection = BrokerConnection(frames, runtime.clock, client_id=settings.client_id)
    try:
        await _negotiate_versions(connection, settings)
        if settings.uses_sasl:
            await authenticate(connection, settings, runtime)
    except OutcomeUnknown as error:
        stage = "authentication" if connection.versions else "versions"
        raise ConnectionFailed(
            address, stage, str(error), "does security.protocol match the listener?"
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


async def _negotiate_versions(connection: BrokerConnection, settings: ClientSettings) -> None:
    """KIP-511: a broker that does not support the newest version of ApiVersions responds in version
    0, which contains the versions that it supports."""
    newest = spec_of(API_VERSIONS_KEY).max_version
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=__version__, is_lograft=True
    )
    timeout_ms = settings.request_timeout_ms
    response = await _request_versions(connection, request, newest, timeout_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        supported = {api.api_key: api.max_version for api in response.api_keys}
        version = min(supported.get(API_VERSIONS_KEY, 0), newest)
        response = await _request_versions(connection, request, version, timeout_ms)
    if response.error_code:
        raise ConnectionFailed(
            connection.address, "versions", f"the broker returned error {response.error_code}"
        )
    connection.versions = {
        api.api_key: VersionRange(api.min_version, api.max_version) for api in response.api_keys
    }
    connection.features = {
        feature.name: feature.max_version_level for feature in response.finalized_features
    }
    connection.is_lograft = response.is_lograft or any(
        feature.name.startswith(_LOGRAFT_FEATURES) for feature in response.supported_features
    )


async def _request_versions(
    connection: BrokerConnection, request: ApiVersionsRequest, version: int, timeout_ms: int
) -> ApiVersionsResponse:
    return await connection.request(
        request, ApiVersionsResponse, version=version, timeout_ms=timeout_ms
    )
