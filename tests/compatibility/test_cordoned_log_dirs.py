"""Log dirs that are cordoned while the broker runs (KIP-1066), here and on Kafka itself."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from lograft.client.admin import Admin, ConfigChange, NewTopic, broker_resource
from lograft.client.errors import BrokerError
from lograft.model.errors import ErrorCode
from tests.compatibility.servers import NODE_ID, Kind, Server, kinds_under_test

pytestmark = pytest.mark.interop
NewName = Callable[[], str]
SECONDS_MAX = 30


@pytest.mark.parametrize("kind", kinds_under_test())
def test_a_broker_whose_log_dirs_are_all_cordoned_takes_no_topic(
    kind: Kind, new_topic: NewName, tmp_path: Path
) -> None:
    async def scenario(admin: Admin) -> None:
        broker = broker_resource(NODE_ID)
        refusals: dict[int, str] = {}

        async def creates() -> bool:
            try:
                await admin.create_topics([NewTopic(new_topic(), partitions=1)])
            except BrokerError as error:
                refusals[error.code] = str(error)
                return False
            return True

        async def wait(is_wanted: bool) -> None:
            """The broker tells the controller with a heartbeat."""
            async with asyncio.timeout(SECONDS_MAX):
                while await creates() is not is_wanted:
                    await asyncio.sleep(0.2)

        assert await creates()
        await admin.alter_configs({broker: [ConfigChange("cordoned.log.dirs", "*")]})
        await wait(False)
        await admin.alter_configs({broker: [ConfigChange("cordoned.log.dirs", "")]})
        await wait(True)
        assert list(refusals) == [ErrorCode.INVALID_REPLICATION_FACTOR]
        assert "cordoned" in refusals[ErrorCode.INVALID_REPLICATION_FACTOR]

    async def play(server: Server) -> None:
        async with Admin(bootstrap_servers=server.bootstrap) as admin:
            await scenario(admin)

    with Server.of(kind, tmp_path).started() as server:
        asyncio.run(play(server))
