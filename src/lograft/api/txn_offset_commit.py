"""TxnOffsetCommit, versions 0-5: commits offsets as part of a producer's transaction.

The offsets take effect when the transaction is committed. Before the first commit of a transaction
its coordinator is asked to verify that it is open and includes this group's partition of the
internal topic; from v5 on (protocol v2) the same request adds the partition. v2: leader epochs. v3:
the member that commits, so that it can be fenced. v4: TRANSACTION_ABORTABLE.
"""

from typing import Final

from lograft.api.claimed_topics import check_claims
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.topic_names import (
    add_responses,
    existing_partitions,
    known_topics,
    permitted_topics,
)
from lograft.api.types import each_item, group_of, transactional_id_of, whole_request
from lograft.coordination.group_shard import GroupShard
from lograft.coordination.offset_commands import commit_transactional_offsets
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.model.errors import ErrorCode, LograftError, Rejected
from lograft.security.authorization import GROUP_READ, TOPIC_READ, TRANSACTIONAL_ID_WRITE
from lograft.storage.producers import UNVERIFIED, ProducerStates, Verification
from lograft.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

API: Final = Api(
    key=28,
    versions=range(6),
    needs=whole_request(TRANSACTIONAL_ID_WRITE, names=transactional_id_of)
    + whole_request(GROUP_READ, names=group_of)
    + each_item(TOPIC_READ),
)

ABORTABLE_SINCE: Final = 4
ADDS_SINCE: Final = 5
#: Offset commits have no sequence numbers: each batch could be the first.
FIRST_SEQUENCE: Final = 0


async def handle(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    image = context.broker.image
    permitted = permitted_topics(context, TOPIC_READ, known_topics(image, request.topics))
    named = existing_partitions(image, permitted)
    known, rejected = await check_claims(context, request.group_id, named)
    reply = TxnOffsetCommitResponse()
    if known:
        request.topics = known
        try:
            reply = await _commit(context, request)
        except LograftError as error:
            reply = error_response(request, code_of(error), str(error))
    add_responses(reply.topics, (_error_response(topic, code) for topic, code in rejected))
    return reply


async def _commit(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise Rejected(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    groups, version = context.broker.groups, context.api_version
    producers = groups.led_for(request.group_id).leader_log().producers
    verification = await _verify(context, request, producers)

    def decide(shard: GroupShard, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        producers.check_transactional(
            request.producer_id, request.producer_epoch, FIRST_SEQUENCE, verification
        )
        return commit_transactional_offsets(shard, request, ticket, api_version=version)

    reply: TxnOffsetCommitResponse = await groups.ask(request.group_id, decide)
    return reply


async def _verify(
    context: Context, request: TxnOffsetCommitRequest, producers: ProducerStates
) -> Verification | None:
    """Returns the verification for the append; None if the transaction is already open here."""
    broker, version = context.broker, context.api_version
    adds = version >= ADDS_SINCE
    if not adds and not broker.config.transaction_partition_verification_enable:
        return UNVERIFIED
    producer = (request.producer_id, request.producer_epoch)
    verification: Verification | None = None

    def begin() -> None:
        nonlocal verification
        verification = producers.begin_verification(
            *producer, FIRST_SEQUENCE, adds=adds, now_ms=broker.clock.wall_ms()
        )

    begin()
    if verification is None:
        return None
    partition = broker.groups.led_for(request.group_id).topic_partition
    codes = await broker.verification.verify(
        request.transactional_id, producer, [partition], adds=adds, on_repeat=begin
    )
    code = codes[partition]
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Older clients do not expect this code; they retry after the following one.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is not ErrorCode.NONE:
        raise Rejected(
            code,
            f"The transaction coordinator of {request.transactional_id} rejected the verification:"
            f" {code.name}.",
        )
    return verification


def error_response(
    request: TxnOffsetCommitRequest, code: ErrorCode, message: str
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[_error_response(topic, code) for topic in request.topics]
    )


def _error_response(
    topic: TxnOffsetCommitRequestTopic, code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition in topic.partitions
        ],
    )
