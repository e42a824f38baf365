"""`lograft quorum` in words."""

from collections.abc import Iterator
from typing import Literal
from uuid import UUID

from lograft.cli.output import NOTHING, number, table
from lograft.client.admin import Admin, QuorumDescription
from lograft.model.errors import InvalidInput
from lograft.model.uuids import uuid_from_text, uuid_to_text


def describe_lines(quorum: QuorumDescription) -> Iterator[str]:
    yield (
        f"leader {quorum.leader} in epoch {quorum.leader_epoch}"
        f"  committed up to {quorum.high_watermark}"
    )
    yield ""
    roles = [("leader" if one.node == quorum.leader else "voter", one) for one in quorum.voters]
    roles += [("observer", one) for one in quorum.observers]
    end = max((one.end_offset for _, one in roles), default=0)
    yield from table(
        ["NODE", "ROLE", "END", "LAG", "LAST FETCH", "DIRECTORY", "ADDRESS"],
        (
            (
                str(one.node),
                role,
                number(one.end_offset),
                number(end - one.end_offset if one.end_offset >= 0 else None),
                _age(quorum.age_ms(one.last_fetch_ms)),
                uuid_to_text(one.directory),
                ", ".join(map(str, quorum.addresses.get(one.node, {}).values())) or NOTHING,
            )
            for role, one in roles
        ),
    )


def _age(age_ms: int | None) -> str:
    return NOTHING if age_ms is None else f"{age_ms / 1000:.1f} s ago"


async def directory_of(
    admin: Admin, node: int, text: str | None, *, among: Literal["voters", "observers"]
) -> UUID:
    """As it was given, or as the quorum sees the node."""
    if text is not None:
        return uuid_from_text(text)
    quorum = await admin.describe_quorum()
    replicas = quorum.voters if among == "voters" else quorum.observers
    found = [one.directory for one in replicas if one.node == node]
    if not found:
        raise InvalidInput(
            f"controller {node} is not among the {among}; `lograft quorum describe` shows who is"
        )
    if len(found) > 1:
        raise InvalidInput(f"controller {node} is there with several directories: give --directory")
    return found[0]
