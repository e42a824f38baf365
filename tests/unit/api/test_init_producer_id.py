import pytest

from lograft.model.errors import ErrorCode
from lograft.model.exchange import CloseConnection
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.support.scenarios import scenario
from tests.unit.api.transactions_bench import play
from tests.unit.broker.bench import Bench, run


async def send_request(
    bench: Bench,
    version: int = 5,
    transactional_id: str | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=1000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return await bench.ask(request, version, InitProducerIdResponse)


@pytest.mark.parametrize("version", range(6))
@scenario(run)
async def test_every_request_gets_a_new_id(bench: Bench, /, version: int) -> None:
    first, second = await send_request(bench, version), await send_request(bench, version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id
    if version >= 3:
        third = await send_request(bench, version, producer_id=first.producer_id, producer_epoch=3)
        assert third.producer_epoch == 0
        assert third.producer_id not in (first.producer_id, second.producer_id)


@scenario(run)
async def test_invalid_requests_are_rejected(bench: Bench, /) -> None:
    rejected = await send_request(bench, transactional_id="t")
    assert rejected.error_code == ErrorCode.NOT_COORDINATOR
    assert (rejected.producer_id, rejected.producer_epoch) == (-1, -1)
    assert (await send_request(bench, transactional_id="")).error_code == ErrorCode.INVALID_REQUEST
    assert (await send_request(bench, producer_id=5)).error_code == ErrorCode.INVALID_REQUEST
    assert (await send_request(bench, producer_epoch=5)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_transactional_id_keeps_its_producer_id(bench: Bench, /, version: int) -> None:
    first, second = await send_request(bench, version, "x"), await send_request(bench, version, "x")
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.error_code, second.producer_epoch) == (0, 1)
    assert first.producer_id == second.producer_id
    assert (await send_request(bench, version, "y")).producer_id != first.producer_id


@pytest.mark.parametrize("version", range(3, 6))
@scenario(play)
async def test_only_the_latest_producer_continues_after_an_error(
    bench: Bench, /, version: int
) -> None:
    first = await send_request(bench, version, "x")
    continued = await send_request(bench, version, "x", first.producer_id, first.producer_epoch)
    assert (continued.producer_id, continued.producer_epoch) == (first.producer_id, 1)
    # The response was lost.
    again = await send_request(bench, version, "x", first.producer_id, first.producer_epoch)
    assert again == continued
    await send_request(bench, version, "x")
    fenced = await send_request(bench, version, "x", first.producer_id, first.producer_epoch)
    assert fenced.error_code == (
        ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert (fenced.producer_id, fenced.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
@scenario(play)
async def test_transaction_timeout_is_limited(bench: Bench, /, timeout_ms: int) -> None:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms)
    rejected = await bench.ask(request, 5, InitProducerIdResponse)
    assert rejected.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


UNSTABLE = 6


@pytest.mark.parametrize("is_allowed", [True, False])
def test_two_phase_commit_needs_two_settings(is_allowed: bool) -> None:
    async def scenario(bench: Bench) -> None:
        def request(**fields: bool) -> InitProducerIdRequest:
            return InitProducerIdRequest(
                transactional_id="x", transaction_timeout_ms=2_000_000_000, **fields
            )

        found = await bench.ask(request(enable2_pc=True), UNSTABLE, InitProducerIdResponse)
        rejected = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert found.error_code == (0 if is_allowed else rejected)
        kept = request(enable2_pc=is_allowed, keep_prepared_txn=True)
        found = await bench.ask(kept, UNSTABLE, InitProducerIdResponse)
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION

    play(
        scenario,
        unstable_api_versions_enable="true",
        transaction_two_phase_commit_enable=str(is_allowed).lower(),
    )


@scenario(play)
async def test_unstable_versions_are_not_served_by_default(bench: Bench, /) -> None:
    with pytest.raises(CloseConnection, match="not supported"):
        await send_request(bench, UNSTABLE, "x")
