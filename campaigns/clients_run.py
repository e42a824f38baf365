"""Runs a cluster with Lograft's own client, administrators and faults, from a seed.

Like `cluster_run.py`, with `lograft.client` instead of the recording client. It finds leaders,
retries and keeps order by itself, so this tests the client: no record is duplicated, lost or out of
order (P1, P2, D1, D5), and after all faults are cleared, every send completes and every consumer
reaches the end of its partitions (L2)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from campaigns.client_loads import (
    ConsumerLoad,
    Place,
    ProducerLoad,
    draw_producer_settings,
)
from campaigns.cluster_admin import ClusterAdmin
from campaigns.cluster_plan import ClusterOptions
from campaigns.cluster_run import LIVENESS_SECONDS, ClusterReport, ClusterRun
from lograft.simulation.cluster import POLL_SECONDS
from lograft.simulation.machine import Life
from lograft.simulation.routing import ClusterClient

#: Machine of the clients; faults may isolate it.
HOST: Final = "users"
PRODUCERS: Final = 4
#: Factor for pauses: these producers send several records at a time, unlike the recording client.
PACE: Final = 4


class ClientsRun(ClusterRun):
    def __init__(self, seed: int, options: ClusterOptions | None = None) -> None:
        super().__init__(seed, options)
        places: list[Place] = [
            (topic, index) for topic in self.topics for index in range(topic.partitions)
        ]
        random = self.random
        self._producers = [
            ProducerLoad(
                number,
                random.sample(places, random.randint(1, len(places))),
                history=self.history,
                random=random,
                settings=draw_producer_settings(random, idempotent=number != PRODUCERS),
                pace_ms=tuple(PACE * each for each in self.options.pace_ms),
            )
            for number in range(1, PRODUCERS + 1)
        ]
        self._consumers = [
            ConsumerLoad(
                number, places, history=self.history, random=random, isolation_level=number % 2
            )
            for number in (1, 2)
        ]

    def start_clients(self, life: Life, admin: ClusterAdmin) -> None:
        life.run(admin.follow(self.options.steps), name="admin")
        servers = ",".join(map(str, self.bootstrap()))
        runtime = self.client_runtime(HOST)
        users = self.client_hosts[HOST].life
        assert users is not None

        def start(work: Coroutine[Any, Any, None], name: str) -> None:
            users.run(self._run_client(work, name), name=name)

        loads: list[ProducerLoad | ConsumerLoad] = [*self._producers, *self._consumers]
        for load in loads:
            start(load.run(servers, runtime), load.name)

    async def _run_client(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception as error:
            self.report_violation("L4", f"client {name} failed: {error!r}")

    async def settle(self, client: ClusterClient) -> None:
        for producer in self._producers:
            producer.end()
        for consumer in self._consumers:
            consumer.is_hurried = True
        await self._by_deadline(self._pending_sends, "sends are pending")
        await self._by_deadline(self._unread_partitions, "partitions are not read to their end")
        # Before the final reads.
        self.client_hosts[HOST].kill()

    async def _by_deadline(self, count: Any, problem: str) -> None:
        deadline_ns = self.deadline_ns()
        while remaining := count():
            if self.loop.now_ns > deadline_ns:
                self.report_violation(
                    "L2",
                    f"{LIVENESS_SECONDS} s after all faults were cleared, {remaining} {problem}",
                )
                return
            await asyncio.sleep(POLL_SECONDS)

    def _pending_sends(self) -> int:
        return sum(producer.pending for producer in self._producers)

    def _unread_partitions(self) -> int:
        """Returns the number of partitions whose last acknowledged record a consumer has not
        received."""
        ends: dict[str, int] = {}
        for send in self.history.operations("send"):
            if send.type == "ok" and "key" not in send.arguments:
                tp = send.arguments["tp"]
                ends[tp] = max(ends.get(tp, 0), send.result["offset"] + 1)
        return sum(
            consumer.positions[place] < ends.get(str(place), 0)
            for consumer in self._consumers
            for place in consumer.positions
        )


def run_clients(seed: int, options: ClusterOptions | None = None) -> ClusterReport:
    return ClientsRun(seed, options).execute()
