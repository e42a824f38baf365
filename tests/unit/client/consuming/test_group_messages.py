"""Messages between members of classic groups. The expected bytes were produced by Java's
ConsumerProtocol (Kafka 4.3.1)."""

import pytest

from lograft.client.consuming.group_messages import (
    MalformedGroupMessage,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
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
    "empty": "000300000000ffffffff",
}


def test_subscriptions_have_the_bytes_of_java() -> None:
    topics = ["b", "a"]
    assert encode_subscription("range", topics, [], -1, "", is_eager=True).hex() == JAVA["range"]
    assert (
        encode_subscription("roundrobin", topics, [], -1, "r1", is_eager=True).hex()
        == JAVA["racked"]
    )
    sticky = encode_subscription("sticky", topics, OWNED, 7, "", is_eager=True)
    assert sticky.hex() == JAVA["sticky"]
    cooperative = encode_subscription("cooperative-sticky", topics, OWNED, 7, "", is_eager=False)
    assert cooperative.hex() == JAVA["cooperative-sticky"]


def test_an_eager_member_reports_no_owned_partitions_to_a_cooperative_assignor() -> None:
    """It has revoked them: a leader that waited for it would leave partitions unassigned."""
    for assignor in ("cooperative-sticky", "consistent"):
        data = encode_subscription(assignor, ["a", "b"], OWNED, 7, "", is_eager=True)
        assert decode_member("m", None, data, assignor).owned == frozenset()
    data = encode_subscription("consistent", ["a", "b"], OWNED, 7, "", is_eager=False)
    assert decode_member("m", None, data, "consistent").owned == frozenset(OWNED)


def test_assignments_have_the_bytes_of_java() -> None:
    assert encode_assignment(OWNED).hex() == JAVA["assignment"]
    assert encode_assignment([]).hex() == JAVA["empty"]
    assert decode_assignment(bytes.fromhex(JAVA["assignment"])) == set(OWNED)
    assert decode_assignment(bytes.fromhex(JAVA["empty"])) == set()
    assert decode_assignment(b"") == set()


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "sticky"])
def test_members_report_owned_partitions_and_generation(assignor: str) -> None:
    member = decode_member("m", "i", bytes.fromhex(JAVA[assignor]), assignor)
    assert member[:3] == ("m", frozenset("ab"), "i")
    assert (member.owned, member.generation) == (frozenset(OWNED), 7)


def test_older_and_newer_versions_are_decoded() -> None:
    oldest = bytes.fromhex("0000" + NAMES[4:] + "ffffffff")
    assert decode_member("m", None, oldest, "range").topics == {"a", "b"}
    generation_only_in_user_data = bytes.fromhex("0001" + NAMES[4:] + "0000000400000009" + A02_B1)
    member = decode_member("m", None, generation_only_in_user_data, "cooperative-sticky")
    assert (member.owned, member.generation) == (frozenset(OWNED), 9)
    later = bytes.fromhex("0009" + JAVA["range"][4:] + "0102")
    assert decode_member("m", None, later, "range").topics == {"a", "b"}


def test_malformed_messages_are_rejected() -> None:
    for broken in (b"", b"\x00", b"\xff\xff", b"\x00\x03\x00\x00\x00\x09"):
        with pytest.raises(MalformedGroupMessage):
            decode_member("m", None, broken, "range")
    # Malformed user data loses the owned partitions only.
    odd = bytes.fromhex(NAMES + "00000003" + "000001" + "00000000" + "ffffffff" + "ffff")
    assert decode_member("m", None, odd, "sticky").owned == frozenset()
