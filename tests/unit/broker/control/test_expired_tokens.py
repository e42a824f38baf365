"""The active controller removes tokens that have expired, in virtual time."""

import asyncio
from typing import Any

from lograft.broker.control.expired_tokens import ExpiredTokenRemover
from lograft.wire.records.delegation_token_record import DelegationTokenRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, make_config, run

SETTINGS = {
    "delegation.token.secret.key": "key",
    "delegation.token.expiry.check.interval.ms": "1000",
}


class ActiveController:
    def __init__(self, bench: Bench) -> None:
        self.is_active = True
        self.submit = bench.controller.submit


def add_tokens(bench: Bench, count: int, *, expires_ms: int) -> None:
    bench.controller.append(
        tuple(
            DelegationTokenRecord(
                token_id=f"{expires_ms}-{number}",
                max_timestamp=2**60,
                expiration_timestamp=expires_ms,
            )
            for number in range(count)
        )
    )


@scenario(run)
async def test_expired_tokens_are_removed(bench: Bench, /) -> None:
    clock = bench.broker.shared.clock
    controller: Any = ActiveController(bench)
    add_tokens(bench, 2_500, expires_ms=clock.wall_ms() + 500)
    add_tokens(bench, 1, expires_ms=clock.wall_ms() + 3_500)
    image = bench.controller.image
    remover = ExpiredTokenRemover(controller, make_config(**SETTINGS), clock)
    task = asyncio.create_task(remover.run())
    await asyncio.sleep(0.9)
    assert len(image.delegation_tokens) == 2_501
    await asyncio.sleep(0.2)
    assert len(image.delegation_tokens) == 1
    controller.is_active = False
    await asyncio.sleep(4)
    assert len(image.delegation_tokens) == 1
    controller.is_active = bench.controller.down = True
    await asyncio.sleep(1)
    bench.controller.down = False
    await asyncio.sleep(1)
    assert not image.delegation_tokens
    task.cancel()


@scenario(run)
async def test_without_a_key_nothing_runs(bench: Bench, /) -> None:
    controller: Any = ActiveController(bench)
    remover = ExpiredTokenRemover(controller, make_config(), bench.broker.shared.clock)
    await remover.run()
