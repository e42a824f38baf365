"""Resources that a broker answers for itself alone: its own settings and loggers."""

from lograft.api.context import Context
from lograft.metadata.errors import Refused
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode


def check_is_own(context: Context, resource_type: int, name: str) -> None:
    """Clients send what concerns one broker to that broker."""
    is_default = resource_type == ResourceType.broker and not name
    if (
        resource_type in (ResourceType.broker, ResourceType.broker_logger)
        and not is_default
        and name != str(context.broker.node_id)
    ):
        raise Refused(
            ErrorCode.invalid_request,
            f"This is broker {context.broker.node_id}: it answers for itself, not for '{name}'.",
        )


def check_may_alter(context: Context, resource_type: int, name: str) -> None:
    """A controller takes the settings of every broker; loggers are each node's own."""
    if context.role == "broker" or resource_type == ResourceType.broker_logger:
        check_is_own(context, resource_type, name)
