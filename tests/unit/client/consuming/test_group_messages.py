"""Bytes that members of classic groups exchange: those of Java's ConsumerProtocol (Kafka 4.3.1),
made by its own classes."""

import pytest

from lograft.client.consuming.group_messages import (
    MemberUnreadable,
    read_assignment,
    read_member,
    written_assignment,
    written_subscription,
)
from lograft.client.types import TopicPartition

OWNED = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("a", 2)]
NAMES = "000300000002000161000162"
A02_B1 = "000000020001610000000200000000000000020001620000000100000001"
JAVA = {
    "range": NAMES + "ffffffff" + "00000000" + "ffffffff" + "ffff",
    "racked": NAMES + "ffffffff" + "00000000" + "ffffffff" + "00027231",
    "cooperative-sticky": NAMES + "0000000400000007" + A02_B1 + "00000007" + "ffff",
    "sticky": NAMES + "00000022" + A02_B1 + "00000007" + "00000000" + "00000007" + "ffff",
    "assignment": "0003" + A02_B1 + "ffffffff",
    "nothing": "000300000000ffffffff",
}


def test_subscriptions_are_javas() -> None:
    topics = ["b", "a"]
    assert written_subscription("range", topics, [], -1, "", is_eager=True).hex() == JAVA["range"]
    assert (
        written_subscription("roundrobin", topics, [], -1, "r1", is_eager=True).hex()
        == JAVA["racked"]
    )
    sticky = written_subscription("sticky", topics, OWNED, 7, "", is_eager=True)
    assert sticky.hex() == JAVA["sticky"]
    cooperative = written_subscription("cooperative-sticky", topics, OWNED, 7, "", is_eager=False)
    assert cooperative.hex() == JAVA["cooperative-sticky"]


def test_an_eager_member_claims_nothing_from_a_cooperative_assignor() -> None:
    """It has given everything back: a leader that waited for it would leave partitions unread."""
    for assignor in ("cooperative-sticky", "consistent"):
        data = written_subscription(assignor, ["a", "b"], OWNED, 7, "", is_eager=True)
        assert read_member("m", None, data, assignor).owned == frozenset()
    data = written_subscription("consistent", ["a", "b"], OWNED, 7, "", is_eager=False)
    assert read_member("m", None, data, "consistent").owned == frozenset(OWNED)


def test_assignments_are_javas() -> None:
    assert written_assignment(OWNED).hex() == JAVA["assignment"]
    assert written_assignment([]).hex() == JAVA["nothing"]
    assert read_assignment(bytes.fromhex(JAVA["assignment"])) == set(OWNED)
    assert read_assignment(bytes.fromhex(JAVA["nothing"])) == set()
    assert read_assignment(b"") == set()


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "sticky"])
def test_members_tell_what_they_had(assignor: str) -> None:
    member = read_member("m", "i", bytes.fromhex(JAVA[assignor]), assignor)
    assert member[:3] == ("m", frozenset("ab"), "i")
    assert (member.owned, member.generation) == (frozenset(OWNED), 7)


def test_older_and_newer_versions_are_read() -> None:
    oldest = bytes.fromhex("0000" + NAMES[4:] + "ffffffff")
    assert read_member("m", None, oldest, "range").topics == {"a", "b"}
    generation_only_in_user_data = bytes.fromhex("0001" + NAMES[4:] + "0000000400000009" + A02_B1)
    member = read_member("m", None, generation_only_in_user_data, "cooperative-sticky")
    assert (member.owned, member.generation) == (frozenset(OWNED), 9)
    later = bytes.fromhex("0009" + JAVA["range"][4:] + "0102")
    assert read_member("m", None, later, "range").topics == {"a", "b"}


def test_what_cannot_be_read() -> None:
    for broken in (b"", b"\x00", b"\xff\xff", b"\x00\x03\x00\x00\x00\x09"):
        with pytest.raises(MemberUnreadable):
            read_member("m", None, broken, "range")
    # Nonsense about the past costs a member only its past.
    odd = bytes.fromhex(NAMES + "00000003" + "000001" + "00000000" + "ffffffff" + "ffff")
    assert read_member("m", None, odd, "sticky").owned == frozenset()
