"""Why a broker is not ready to serve its clients.

A broker is ready when it serves everything that the cluster's metadata assigns to it, which is more
than being alive: one of two offline log dirs, or a coordinator that is still loading, makes it
unready, so that a rolling restart waits.
"""

from collections.abc import Iterator

from lograft.broker.broker import Broker
from lograft.broker.control.registration import BrokerRegistration, Stage
from lograft.model.health import UnreadyCause, UnreadyReason


def find_unready_reasons(
    broker: Broker, registration: BrokerRegistration
) -> Iterator[UnreadyReason]:
    """Yields nothing if the broker is ready."""
    yield from _find_stage_reasons(broker, registration)
    offline = [directory.path for directory in broker.logs.directories if directory.offline]
    for path in (*broker.logs.unusable, *offline):
        yield UnreadyReason(
            UnreadyCause.LOG_DIR_OFFLINE,
            f"log dir {path} is offline: replace the disk, or correct its permissions, and restart"
            " the broker",
        )
    for topic, count in broker.coordinators.count_loading().items():
        if count:
            yield UnreadyReason(
                UnreadyCause.LOADING_COORDINATORS,
                f"the coordinators of {count} partitions of {topic} are loading",
            )


def _find_stage_reasons(
    broker: Broker, registration: BrokerRegistration
) -> Iterator[UnreadyReason]:
    offset, epoch = broker.image.offset, registration.broker_epoch
    match registration.stage:
        case Stage.STARTING:
            yield UnreadyReason(
                UnreadyCause.NOT_REGISTERED,
                "the controller has not registered this broker yet",
            )
        case Stage.REGISTERED if offset < epoch:
            yield UnreadyReason(
                UnreadyCause.CATCHING_UP,
                f"the broker has read the metadata log up to offset {offset}, and its registration"
                f" is at offset {epoch}",
            )
        case Stage.REGISTERED if not broker.is_loaded:
            yield UnreadyReason(
                UnreadyCause.RECOVERING_LOGS, "the broker is opening and recovering its logs"
            )
        case Stage.REGISTERED:
            yield UnreadyReason(
                UnreadyCause.CATCHING_UP,
                "the controller has not confirmed yet that the broker has read the metadata log",
            )
        case Stage.CAUGHT_UP:
            yield UnreadyReason(
                UnreadyCause.FENCED,
                "the controller has fenced this broker: it leads no partitions until it accepts"
                " a heartbeat",
            )
        case Stage.UNFENCED if not registration.has_lease():
            yield UnreadyReason(
                UnreadyCause.FENCED,
                "the controller has accepted no heartbeat within broker.session.timeout.ms and may"
                " have fenced this broker",
            )
        case Stage.UNFENCED:
            pass
        case Stage.SHUTTING_DOWN | Stage.STOPPED:
            yield UnreadyReason(
                UnreadyCause.SHUTTING_DOWN, "the broker is in a controlled shutdown"
            )
