"""The quotas of kafka-configs: of users, clients, both, and IP addresses."""

from collections.abc import Mapping, Sequence
from typing import Final

from lograft.client.admin import Admin, ConfigChange, Operation, QuotaEntity
from lograft.model.errors import InvalidInput

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"
#: Kinds of entities with quotas, as the tool prints them.
LABELS: Final = {USERS: "user-principal", CLIENTS: "client-id", IPS: "ip"}
CLIENT_QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
IP_QUOTAS: Final = ("connection_creation_rate",)
#: Java prints larger numbers with an exponent.
_PLAIN_MAX: Final = 10_000_000
_PLAIN_MIN: Final = 0.001

#: The name by kind; an empty name is the default, None stands for all names.
Entity = Mapping[str, str | None]


async def describe(admin: Admin, entity: Entity) -> None:
    """Prints the quotas of all entities that have exactly these kinds."""
    found = await admin.describe_client_quotas()
    for known, values in sorted(found.items(), key=lambda item: str(item[0])):
        names = _names_of(known)
        if (
            values
            and names.keys() == entity.keys()
            and all(name in (None, names[kind]) for kind, name in entity.items())
        ):
            configs = ", ".join(
                f"{name}={format_double(value)}" for name, value in sorted(values.items())
            )
            print(f"Quota configs for {_describe_entity(names)} are {configs}")


async def alter(admin: Admin, entity: Entity, changes: Sequence[ConfigChange]) -> None:
    """Raises InvalidInput if a quota is deleted that the entity does not have."""
    key = QuotaEntity(entity.get(USERS), entity.get(CLIENTS), entity.get(IPS))
    values: dict[str, float | None] = {}
    for change in changes:
        values[change.name] = None if change.operation is Operation.DELETE else _parse(change)
    known = (await admin.describe_client_quotas(key)).get(key, {})
    missing = [name for name, value in values.items() if value is None and name not in known]
    if missing:
        raise InvalidInput(f"Invalid config(s): {','.join(missing)}")
    await admin.alter_client_quotas({key: values})


def check_names(entity: Entity, changes: Sequence[ConfigChange]) -> None:
    """Raises InvalidInput for settings that are no quotas of such an entity."""
    allowed = IP_QUOTAS if IPS in entity else CLIENT_QUOTAS
    unknown = [change.name for change in changes if change.name not in allowed]
    if unknown:
        kind = IPS if IPS in entity else CLIENTS if CLIENTS in entity else USERS
        what = {
            IPS: "connection quota configs",
            CLIENTS: "quota configs",
            USERS: "quota and SCRAM credential configs",
        }[kind]
        raise InvalidInput(
            f"Only {what} can be changed for '{kind}' using --bootstrap-server. Unexpected config"
            f" names: {', '.join(unknown)}"
        )


def _parse(change: ConfigChange) -> float:
    try:
        return float(change.value or "")
    except ValueError:
        raise InvalidInput(
            f"Cannot parse quota configuration value for {change.name}: {change.value}"
        ) from None


def _names_of(entity: QuotaEntity) -> dict[str, str]:
    names = {USERS: entity.user, CLIENTS: entity.client_id, IPS: entity.ip}
    return {kind: name for kind, name in names.items() if name is not None}


def _describe_entity(names: Mapping[str, str]) -> str:
    return ", ".join(
        f"{LABELS[kind]} '{name}'" if name else f"the default {LABELS[kind]}"
        for kind, name in names.items()
    )


def format_double(value: float) -> str:
    """Returns the number as Java prints it."""
    if value == 0 or _PLAIN_MIN <= abs(value) < _PLAIN_MAX:
        return repr(float(value))
    for precision in range(17):
        digits, _, exponent = f"{value:.{precision}e}".partition("e")
        if float(f"{digits}e{exponent}") == value:
            break
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
