"""From an open channel to a BrokerConnection: which versions the broker speaks, and who we are."""

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
#: What the names of the features begin with that only Lograft's brokers have.
_OWN_FEATURES: Final = "lograft."


async def open_link(
    runtime: Runtime,
    transport: Transport,
    address: Address,
    settings: ClientSettings,
    *,
    setup_timeout_ms: int,
) -> BrokerConnection:
    """Raises ConnectionFailed (AuthenticationFailed is one)."""
    try:
        channel = await transport.connect(address, timeout_ms=setup_timeout_ms)
    except ConnectionRefusedError:
        raise ConnectionFailed(
            address, "connect", "nobody listens there", "is the broker up, and is the port right?"
        ) from None
    except OSError as error:
        raise ConnectionFailed(address, "connect", str(error)) from None
    caller = ClientConnection(channel, address, frame_bytes_max=FRAME_BYTES_MAX)
    link = BrokerConnection(caller, runtime.clock, client_id=settings.client_id)
    try:
        await _learn_versions(link, settings)
        if settings.uses_sasl:
            await authenticate(link, settings, runtime)
    except OutcomeUnknown as error:
        stage = "authentication" if link.versions else "versions"
        raise ConnectionFailed(
            address, stage, str(error), "does security.protocol fit that listener?"
        ) from None
    except BaseException:
        link.close()
        raise
    return link


async def _learn_versions(link: BrokerConnection, settings: ClientSettings) -> None:
    """KIP-511: a broker that is older than our version of the question answers it in version 0."""
    newest = spec_of(API_VERSIONS_KEY).max_version
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=__version__, is_lograft=True
    )
    timeout_ms = settings.request_timeout_ms
    answer = await _ask_versions(link, request, newest, timeout_ms)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        offered = {one.api_key: one.max_version for one in answer.api_keys}
        version = min(offered.get(API_VERSIONS_KEY, 0), newest)
        answer = await _ask_versions(link, request, version, timeout_ms)
    if answer.error_code:
        raise ConnectionFailed(
            link.address, "versions", f"the broker answers with error {answer.error_code}"
        )
    link.versions = {
        one.api_key: VersionRange(one.min_version, one.max_version) for one in answer.api_keys
    }
    link.features = {one.name: one.max_version_level for one in answer.finalized_features}
    link.is_lograft = answer.is_lograft or any(
        one.name.startswith(_OWN_FEATURES) for one in answer.supported_features
    )


async def _ask_versions(
    link: BrokerConnection, request: ApiVersionsRequest, version: int, timeout_ms: int
) -> ApiVersionsResponse:
    return await link.ask(request, ApiVersionsResponse, version=version, timeout_ms=timeout_ms)
