from lograft.model.errors import ErrorCode
from lograft.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@scenario(run)
async def test_blocks_do_not_overlap(bench: Bench, /) -> None:
    epoch = bench.broker.image.brokers[1].epoch

    async def allocate(broker_epoch: int) -> AllocateProducerIdsResponse:
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=broker_epoch)
        return await bench.ask(request, 0, AllocateProducerIdsResponse, role="controller")

    first, second = await allocate(epoch), await allocate(epoch)
    assert first.producer_id_len > 0
    assert second.producer_id_start == first.producer_id_start + first.producer_id_len
    assert (await allocate(epoch + 9)).error_code == ErrorCode.STALE_BROKER_EPOCH
