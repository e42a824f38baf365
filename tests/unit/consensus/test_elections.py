from lograft.consensus.election import Election
from lograft.consensus.types import LogEnd, ReplicaKey, VoterSet
from lograft.model.types import NO_EPOCH, Epoch, NodeId, Offset

KEYS = [ReplicaKey(NodeId(node)) for node in range(1, 6)]


def election(voters: int) -> tuple[Election, dict[NodeId, int]]:
    """Also returns the number of the request to each of the others."""
    held = Election(VoterSet.of(KEYS[:voters]), pre_vote=False, deadline_ms=100)
    requests = held.requests(
        KEYS[0], Epoch(1), LogEnd(NO_EPOCH, Offset(0)), life=NO_EPOCH, first_id=10
    )
    return held, {request.to.node_id: request.request_id for request in requests}


def test_a_majority_wins() -> None:
    held, asked = election(5)
    held.grant(NodeId(1))
    won = []
    for node in (NodeId(2), NodeId(5)):
        held.on_response(asked[node], granted=True)
        won.append(held.is_won)
    assert won == [False, True]
    assert list(held.granting) == [1, 2, 5]


def test_an_answer_counts_once_and_only_from_whom_was_asked() -> None:
    held, asked = election(5)
    number = asked[NodeId(2)]
    assert not held.is_pending(number, NodeId(3))
    assert held.is_pending(number, NodeId(2))
    held.on_response(number, granted=True)
    assert not held.is_pending(number, NodeId(2))


def test_it_is_hopeless_when_too_few_are_left() -> None:
    held, asked = election(4)
    held.grant(NodeId(1))
    held.on_response(asked[NodeId(2)], granted=False)
    hopeless = [held.cannot_win]
    assert held.on_unreachable(NodeId(3))
    hopeless.append(held.cannot_win)
    assert hopeless == [False, True]
    assert not held.on_unreachable(NodeId(3)), "known already"
