"""Configuration requests for several resources, of which a broker handles some itself: its own
settings and loggers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from lograft.api.authorization import is_allowed, permission_error
from lograft.api.context import Context
from lograft.api.errors import code_of
from lograft.api.forwarding import must_forward
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode, InvalidInput, LograftError, Rejected
from lograft.model.exchange import CloseConnection
from lograft.model.settings.dynamic import check_without_file, validate_dynamic
from lograft.security.authorization import (
    CLUSTER_ALTER_CONFIGS,
    CLUSTER_DESCRIBE_CONFIGS,
    CLUSTER_NAME,
    GROUP_ALTER_CONFIGS,
    GROUP_DESCRIBE_CONFIGS,
    TOPIC_ALTER_CONFIGS,
    TOPIC_DESCRIBE_CONFIGS,
    Permission,
)

R = TypeVar("R")
A = TypeVar("A")


def check_is_own(context: Context, resource_type: int, name: str) -> None:
    """Raises Rejected for another broker: clients send requests about a broker to that broker."""
    is_default = resource_type == ResourceType.BROKER and not name
    if (
        resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        and not is_default
        and name != str(context.shared.node_id)
    ):
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {context.shared.node_id}; send requests about '{name}' to that one.",
        )


def check_may_describe(context: Context, resource_type: int, name: str) -> None:
    match resource_type:
        case ResourceType.TOPIC:
            _check(context, TOPIC_DESCRIBE_CONFIGS, name)
        case ResourceType.GROUP:
            _check(context, GROUP_DESCRIBE_CONFIGS, name)
        case _:
            _check(context, CLUSTER_DESCRIBE_CONFIGS, CLUSTER_NAME)


def _check(context: Context, permission: Permission, name: str) -> None:
    if not is_allowed(context, permission, name):
        raise permission_error(permission, name)


def check_may_alter(context: Context, resource_type: int, name: str) -> None:
    """A controller accepts the settings of every broker; loggers belong to one node. The node that
    makes the decision checks the permission: this one, or the controller to which it forwards."""
    if resource_type == ResourceType.BROKER_LOGGER or not must_forward(context):
        match resource_type:
            case ResourceType.TOPIC:
                _check(context, TOPIC_ALTER_CONFIGS, name)
            case ResourceType.GROUP:
                _check(context, GROUP_ALTER_CONFIGS, name)
            case _:
                _check(context, CLUSTER_ALTER_CONFIGS, CLUSTER_NAME)
    if context.role == "broker" or resource_type == ResourceType.BROKER_LOGGER:
        check_is_own(context, resource_type, name)


def check_broker_values(
    context: Context, name: str, values: Mapping[str, str], *, named: Iterable[str]
) -> None:
    """Rejects dynamic settings that could not be applied, before the controller stores them. A
    broker checks its own settings and those of all brokers. The active controller also checks its
    own settings, and of other brokers' settings rejects what no broker could apply, unless a broker
    has checked the request. `values` are all values of the resource after the request."""
    shared, named = context.shared, tuple(named)
    is_own = context.role == "broker" or name == str(shared.node_id)
    if not is_own and context.is_forwarded:
        return
    try:
        validate_dynamic(values, changed_names=named, whole_cluster=not name)
        if is_own:
            shared.metadata.check_dynamic_change(values, named=named, whole_cluster=not name)
        else:
            stored = shared.image.config_of(ResourceType.BROKER, "") if name else {}
            check_without_file(shared.metadata.static_config, {**stored, **values}, named=named)
    except InvalidInput as error:
        raise Rejected(ErrorCode.INVALID_REQUEST, str(error)) from None


async def handle_each(
    resources: Sequence[R],
    *,
    here: Callable[[R], A | None],
    decide: Callable[[list[R]], Awaitable[list[A]]],
    build_error: Callable[[R, int, str], A],
) -> list[A]:
    """Returns a response for each resource, in order. `here` returns the response of one that
    this node handles, or None; all others go to the controller in one decision."""
    responses: dict[int, A] = {}
    for number, resource in enumerate(resources):
        try:
            response = here(resource)
        except Rejected as rejection:
            response = build_error(resource, rejection.code, rejection.message)
        if response is not None:
            responses[number] = response
    rest = [resource for n, resource in enumerate(resources) if n not in responses]
    decided: list[A] = []
    if rest:
        try:
            decided = await decide(rest)
        except CloseConnection:
            raise
        except LograftError as error:
            code, message = code_of(error), str(error)
            decided = [build_error(resource, code, message) for resource in rest]
    following = iter(decided)
    return [responses[n] if n in responses else next(following) for n in range(len(resources))]
