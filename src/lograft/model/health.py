"""What a node reports over HTTP: its identity, and why it is not ready."""

from enum import Enum
from typing import NamedTuple


class NodeIdentity(NamedTuple):
    node_id: int
    cluster_id: str


class UnreadyCause(Enum):
    """The value is what /health/ready returns as `code`."""

    #: The node is opening its log dirs or reading the metadata log.
    STARTING = "starting"
    #: There is no active controller, or this node has not found it.
    CONTROLLER_UNKNOWN = "controller_unknown"
    NOT_REGISTERED = "not_registered"
    #: The broker has not read the metadata log up to its registration, or the controller has not
    #: seen that it has.
    CATCHING_UP = "catching_up"
    RECOVERING_LOGS = "recovering_logs"
    FENCED = "fenced"
    LOG_DIR_OFFLINE = "log_dir_offline"
    LOADING_COORDINATORS = "loading_coordinators"
    SHUTTING_DOWN = "shutting_down"


class UnreadyReason(NamedTuple):
    cause: UnreadyCause
    #: One sentence for operators.
    message: str
