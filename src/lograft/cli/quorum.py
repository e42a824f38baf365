"""Output of `lograft quorum`, and the directory ids of controllers."""

from collections.abc import Iterator
from typing import Literal
from uuid import UUID

from lograft.cli.output import NOTHING, number, table
from lograft.client.admin import Admin, QuorumDescription
from lograft.model.errors import InvalidInput
from lograft.model.uuids import uuid_from_text, uuid_to_text


def describe_lines(quorum: QuorumDescription) -> Iterator[str]:
    yield (
        f"leader {quorum.leader}  epoch {quorum.leader_epoch}"
        f"  high watermark {quorum.high_watermark}"
    )
    yield ""
    roles = [
        ("leader" if replica.node == quorum.leader else "voter", replica)
        for replica in quorum.voters
    ]
    roles += [("observer", replica) for replica in quorum.observers]
    end = max((replica.end_offset for _, replica in roles), default=0)
    yield from table(
        ["NODE", "ROLE", "LOG END", "LAG", "LAST FETCH", "DIRECTORY", "ADDRESS"],
        (
            (
                str(replica.node),
                role,
                number(replica.end_offset),
                number(end - replica.end_offset if replica.end_offset >= 0 else None),
                _format_age(quorum.age_ms(replica.last_fetch_ms)),
                uuid_to_text(replica.directory),
                ", ".join(map(str, quorum.addresses.get(replica.node, {}).values())) or NOTHING,
            )
            for role, replica in roles
        ),
    )


def _format_age(age_ms: int | None) -> str:
    return NOTHING if age_ms is None else f"{age_ms / 1000:.1f} s ago"


async def directory_of(
    admin: Admin, node: int, text: str | None, *, among: Literal["voters", "observers"]
) -> UUID:
    """Parses a directory id, or finds the one of the node in the quorum if `text` is None."""
    if text is not None:
        return uuid_from_text(text)
    quorum = await admin.describe_quorum()
    replicas = quorum.voters if among == "voters" else quorum.observers
    found = [replica.directory for replica in replicas if replica.node == node]
    if not found:
        raise InvalidInput(
            f"controller {node} is not among the {among}: `lograft quorum describe` shows them"
        )
    if len(found) > 1:
        raise InvalidInput(
            f"controller {node} appears with several directory ids: specify --directory"
        )
    return found[0]
