"""Any two logs written by leaders of distinct epochs find their common prefix, and lose no more."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.replication.divergence import diverging_epoch, truncation_offset
from lograft.replication.types import EpochEnd
from tests.unit.replication.list_log import Entry, ListLog


def common_prefix(first: ListLog, second: ListLog) -> int:
    count = 0
    for mine, theirs in zip(first.entries, second.entries, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def agree(leader: ListLog, follower: ListLog) -> int:
    """Fetches until the leader finds no divergence; returns the number of requests."""
    shared = common_prefix(leader, follower)
    for asked in range(1, 50):
        own = EpochEnd(*leader.epoch_end(follower.latest_epoch))
        last = follower.latest_epoch
        if last < 0:
            return asked
        diverging = diverging_epoch(
            last_fetched_epoch=last, fetch_offset=follower.end_offset, own=own
        )
        if diverging is None:
            return asked
        cut = truncation_offset(
            diverging,
            own=EpochEnd(*follower.epoch_end(diverging.epoch)),
            log_end=follower.end_offset,
        )
        assert cut >= shared, "cuts what both have"
        follower.truncate(cut)
    raise AssertionError("they never agree")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),  # leader of the next epoch, and the number of its records
            st.integers(0, 3),  # how much it writes
            st.lists(
                st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=3
            ),  # the replica that copies
        ),
        max_size=12,
    )
)
def test_logs_find_their_common_part(
    story: list[tuple[int, int, list[tuple[int, int]]]],
) -> None:
    logs = [ListLog() for _ in range(3)]
    uid = 0
    for epoch, (leads, written, copies) in enumerate(story):
        leader = logs[leads]
        leader.assign_epoch(epoch)
        for _ in range(written):
            uid += 1
            leader.append(leader.end_offset, [Entry(epoch, uid)])
        for copier, count in copies:
            follower = logs[copier]
            if follower is leader:
                continue
            epochs_known = len(follower.epochs.entries)
            assert agree(leader, follower) <= epochs_known + 1
            assert follower.entries == leader.entries[: follower.end_offset]
            end = follower.end_offset
            follower.append(end, leader.read(end, end + count))
