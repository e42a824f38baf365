"""The transaction coordinator's decisions, one scenario each. The expected responses are those of
Kafka 4.3.1, except where the shard's docstring says that it is stricter."""

import pytest

from lograft.coordination.transaction import LAST_EPOCH
from lograft.coordination.transaction_shard import OPEN_TRANSACTIONS
from lograft.coordination.transaction_states import FOLLOWERS, PENDING, TransactionState
from lograft.coordination.types import CoordinatorResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import value_of
from tests.unit.coordination.transaction_driver import T1, V2, World

A: dict[str, tuple[int, ...]] = {"a": (0, 1)}
B: dict[str, tuple[int, ...]] = {"b": (0,)}
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
WRONG_STATE = ErrorCode.INVALID_TXN_STATE
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class refused:
    def __init__(self, code: ErrorCode) -> None:
        self._raises = pytest.raises(Rejected)
        self._code = code

    def __enter__(self) -> None:
        self._caught = self._raises.__enter__()

    def __exit__(self, *error: object) -> bool:
        is_expected = self._raises.__exit__(*error)  # type: ignore[arg-type]
        assert self._caught.value.code == self._code, self._caught.value.code.name
        return is_expected


def begun(world: World, **more: object) -> tuple[int, int]:
    reply = world.init(**more)  # type: ignore[arg-type]
    assert reply.error_code == 0
    return reply.producer_id, reply.producer_epoch


def at_epoch(world: World, epoch: int) -> tuple[int, int]:
    """A producer with this epoch, without the transactions before it."""
    producer_id, _ = begun(world)
    after = world.shard.transactions[T1]._replace(epoch=epoch)
    world.apply(CoordinatorResult(records=(after.record(T1, value_version=1),)))
    return producer_id, epoch


def test_the_table_leads_from_every_state_to_the_end_of_its_transaction() -> None:
    for state, after in PENDING.items():
        assert FOLLOWERS[state] == (after,)
    assert set(TransactionState) - FOLLOWERS.keys() == {
        TransactionState.DEAD,
        TransactionState.PREPARE_EPOCH_FENCE,
    }


def test_a_transaction_of_v2_from_begin_to_end() -> None:
    world = World()
    producer_id, epoch = begun(world)
    assert world.state() == f"Empty {producer_id}/0"
    assert world.add(producer_id, epoch, A) == {("a", 0): 0, ("a", 1): 0}
    assert world.add(producer_id, epoch, B) == {("b", 0): 0}
    assert world.verify(producer_id, epoch, A | B) == {("a", 0): 0, ("a", 1): 0, ("b", 0): 0}
    reply = world.end(producer_id, epoch)
    assert (reply.producer_id, reply.producer_epoch) == (producer_id, 1)
    (effect,) = world.effects
    assert effect.committed
    assert effect.partitions == A | B
    assert (effect.producer_id, effect.producer_epoch) == (producer_id, 1)
    assert world.state() == f"PrepareCommit {producer_id}/1"
    world.written()
    assert world.state() == f"CompleteCommit {producer_id}/1"


def test_with_v1_the_epoch_stays() -> None:
    world = World(version=1)
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, A, version=0)
    world.end(producer_id, epoch, version=0, commit=False)
    assert world.effects[0].producer_epoch == 0
    world.written()
    assert world.state() == f"CompleteAbort {producer_id}/0"
    assert world.end(producer_id, epoch, version=0, commit=False).error_code == 0
    with refused(WRONG_STATE):
        world.end(producer_id, epoch, version=0, commit=True)


@pytest.mark.parametrize("commit", [True, False])
def test_v1_cannot_end_what_has_not_begun(commit: bool) -> None:
    world = World()
    producer_id, epoch = begun(world)
    with refused(WRONG_STATE):
        world.end(producer_id, epoch, commit=commit, version=0)


def test_while_markers_are_written_everybody_is_told_to_come_again() -> None:
    world = World()
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, A)
    world.end(producer_id, epoch)
    for ask in (
        lambda: world.add(producer_id, epoch + 1, A),
        lambda: world.verify(producer_id, epoch + 1, A),
        lambda: world.end(producer_id, epoch),
        lambda: world.init(),
    ):
        with refused(CONCURRENT):
            ask()


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_asked_again_is_told_what_became_of_it(commit: bool) -> None:
    world = World()
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, A)
    world.end(producer_id, epoch, commit=commit)
    world.written()
    world.crash(compact=True)
    reply = world.end(producer_id, epoch, commit=commit)
    assert (reply.producer_id, reply.producer_epoch) == (producer_id, 1)
    with refused(WRONG_STATE):
        world.end(producer_id, epoch, commit=not commit)


def test_a_late_request_cannot_touch_the_next_transaction() -> None:
    world = World()
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, A)
    world.end(producer_id, epoch)
    world.written()
    world.add(producer_id, epoch + 1, B)
    for late in (
        lambda: world.add(producer_id, epoch, A),
        lambda: world.end(producer_id, epoch),
        lambda: world.end(producer_id, epoch, commit=False),
        lambda: world.verify(producer_id, epoch, A),
        lambda: world.init(producer_id=producer_id, epoch=epoch),
    ):
        with refused(FENCED):
            late()
    assert world.state() == f"Ongoing {producer_id}/1"


@pytest.mark.parametrize(
    ("commit", "code"), [(True, WRONG_STATE), (False, None)], ids=["commit", "abort"]
)
def test_v2_may_abort_what_wrote_nothing(commit: bool, code: ErrorCode | None) -> None:
    world = World()
    producer_id, epoch = begun(world)
    if code is not None:
        with refused(code):
            world.end(producer_id, epoch, commit=commit)
        return
    for expected in (1, 2, 3):
        reply = world.end(producer_id, expected - 1, commit=False)
        assert (reply.producer_id, reply.producer_epoch) == (producer_id, expected)
        assert world.state() == f"CompleteAbort {producer_id}/{expected}"
    assert not world.effects


def test_a_new_producer_aborts_what_the_one_before_left_behind() -> None:
    world = World()
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, A)
    assert world.init().error_code == CONCURRENT
    assert world.state() == f"PrepareAbort {producer_id}/1"
    (effect,) = world.effects
    assert not effect.committed
    world.written()
    assert begun(world) == (producer_id, 2)
    for zombie in (
        lambda: world.add(producer_id, epoch, A),
        lambda: world.end(producer_id, epoch),
        lambda: world.init(producer_id=producer_id, epoch=epoch),
    ):
        with refused(FENCED):
            zombie()


def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch_once() -> None:
    world = World()
    producer_id, epoch = begun(world)
    assert begun(world, producer_id=producer_id, epoch=epoch) == (producer_id, 1)
    # The response was lost: a retry gets the same one.
    assert begun(world, producer_id=producer_id, epoch=epoch) == (producer_id, 1)
    assert begun(world, producer_id=producer_id, epoch=1) == (producer_id, 2)
    with refused(FENCED):
        world.init(producer_id=producer_id, epoch=epoch)


def test_after_a_new_producer_the_old_one_cannot_go_on() -> None:
    world = World()
    old = begun(world)
    assert begun(world) == (old[0], 1)
    with refused(FENCED):
        world.init(producer_id=old[0], epoch=old[1])


def test_going_on_with_an_id_that_was_forgotten_begins_anew() -> None:
    world = World()
    producer_id, epoch = begun(world, producer_id=77, epoch=5)
    assert (producer_id, epoch) == (1001, 0)


def test_a_foreign_producer_id_is_not_let_in() -> None:
    world = World()
    producer_id, epoch = begun(world)
    with refused(UNKNOWN):
        world.add(producer_id + 1, epoch, A)
    with refused(UNKNOWN):
        world.end(producer_id + 1, epoch)
    with refused(UNKNOWN):
        world.add(producer_id, epoch, A, name="other")
    with refused(FENCED):
        world.init(producer_id=producer_id + 1, epoch=epoch)


def test_verification_knows_the_partitions_that_were_not_added() -> None:
    world = World()
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, B)
    assert world.verify(producer_id, epoch, B | A) == {
        ("b", 0): 0,
        ("a", 0): ErrorCode.TRANSACTION_ABORTABLE,
        ("a", 1): ErrorCode.TRANSACTION_ABORTABLE,
    }


# The epochs are exhausted.


def test_when_epochs_are_used_up_the_end_brings_a_new_producer_id() -> None:
    world = World()
    producer_id, epoch = at_epoch(world, LAST_EPOCH)
    world.add(producer_id, epoch, A)
    reply = world.end(producer_id, epoch)
    new_id = world.next_producer_id
    assert (reply.producer_id, reply.producer_epoch) == (new_id, 0)
    assert world.effects[0].producer_id == producer_id
    assert world.effects[0].producer_epoch == LAST_EPOCH + 1
    world.crash(compact=True)
    world.written(world.effects[0])
    assert world.state() == f"CompleteCommit {new_id}/0"
    # The response was lost, and the producer retries with its known id and epoch.
    again = world.end(producer_id, epoch)
    assert (again.producer_id, again.producer_epoch) == (new_id, 0)
    with refused(UNKNOWN):
        world.end(producer_id, epoch - 1)


def test_when_epochs_are_used_up_a_new_producer_gets_a_new_id() -> None:
    world = World()
    producer_id, epoch = at_epoch(world, LAST_EPOCH)
    new = begun(world, producer_id=producer_id, epoch=epoch)
    assert new == (world.next_producer_id, 0)
    assert begun(world, producer_id=producer_id, epoch=epoch) == new
    assert begun(world) == (new[0], 1)
    with refused(FENCED):
        world.init(producer_id=producer_id, epoch=epoch)


def test_a_producer_can_be_shut_out_with_its_last_epoch() -> None:
    world = World()
    producer_id, epoch = at_epoch(world, LAST_EPOCH)
    world.add(producer_id, epoch, A)
    world.init()
    assert world.effects[0].producer_epoch == LAST_EPOCH + 1
    world.written()
    assert world.state() == f"CompleteAbort {world.next_producer_id}/0"
    with refused(UNKNOWN):
        world.add(producer_id, epoch, A)


def test_without_producer_ids_the_client_comes_again() -> None:
    world = World()
    world.has_producer_ids = False
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        world.init()
    assert world.state() == "none"


# Timeouts.


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_shut_out() -> None:
    world = World()
    producer_id, epoch = begun(world, timeout_ms=5_000)
    world.crash()
    world.add(producer_id, epoch, A)
    world.tick(4_000)
    assert world.state() == f"Ongoing {producer_id}/0"
    world.tick(10_000)
    assert world.state() == f"PrepareAbort {producer_id}/1"
    world.written()
    with refused(FENCED):
        world.add(producer_id, epoch, A)
    with refused(WRONG_STATE):
        world.end(producer_id, epoch)
    reply = world.end(producer_id, epoch, commit=False)
    assert (reply.producer_id, reply.producer_epoch) == (producer_id, 1)


def test_many_that_take_too_long_are_aborted_in_several_batches() -> None:
    world = World()
    world.crash()
    for number in range(250):
        producer_id, epoch = begun(world, name=f"t{number}", timeout_ms=1)
        world.add(producer_id, epoch, A, name=f"t{number}")
    world.tick(20_000)
    assert len(world.effects) == 250
    assert value_of(world.shard, OPEN_TRANSACTIONS) == 0


def test_a_distributed_transaction_has_no_timeout() -> None:
    world = World(config={"transaction.two.phase.commit.enable": "true"})
    producer_id, epoch = begun(world, enable2_pc=True)
    world.crash()
    world.add(producer_id, epoch, A)
    world.tick(10**9)
    assert world.state() == f"Ongoing {producer_id}/0"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_limit_is_refused(timeout_ms: int) -> None:
    with refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT):
        World().init(timeout_ms=timeout_ms)


def test_what_two_phase_commit_needs_is_refused_without_it() -> None:
    with refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        World().init(enable2_pc=True)
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        World().init(keep_prepared_txn=True)


def test_a_transactional_id_is_forgotten_when_it_was_idle_for_long() -> None:
    world = World(config={"transactional.id.expiration.ms": "10000000"})
    begun(world)
    producer_id, epoch = begun(world, name="busy", timeout_ms=900_000)
    world.crash()
    world.add(producer_id, epoch, A, name="busy")
    world.tick(3_600_000)
    assert world.state() != "none"
    world.tick(7_000_000)
    assert world.state() == "none"
    assert world.state("busy") == f"PrepareAbort {producer_id}/1"
    assert world.shard.transactions.keys() == {"busy"}
    world.crash(compact=True)
    assert world.shard.transactions.keys() == {"busy"}


# Failover.


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_leader_goes_on_with_what_was_decided(commit: bool) -> None:
    world = World()
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, A)
    world.end(producer_id, epoch, commit=commit)
    (lost,) = world.effects
    world.effects.clear()
    world.crash(compact=True)
    (effect,) = world.effects
    assert effect.coordinator_epoch > lost.coordinator_epoch
    assert (effect.committed, effect.partitions) == (commit, A)
    world.written()
    assert world.state().startswith("CompleteCommit" if commit else "CompleteAbort")


def test_markers_reported_twice_end_one_transaction_only() -> None:
    world = World()
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, A)
    world.end(producer_id, epoch)
    (effect,) = world.effects
    world.effects.append(effect)
    world.written(effect)
    world.add(producer_id, epoch + 1, B)
    world.end(producer_id, epoch + 1)
    written = len(world.log)
    world.written(effect)
    assert len(world.log) == written
    assert world.state() == f"PrepareCommit {producer_id}/2"


def test_without_the_feature_records_have_the_first_format() -> None:
    world = World(version=0)
    producer_id, epoch = begun(world)
    world.add(producer_id, epoch, A, version=0)
    assert [value[:2] for _, value in world.log if value] == [b"\0\0", b"\0\0"]
    assert V2 == 2
