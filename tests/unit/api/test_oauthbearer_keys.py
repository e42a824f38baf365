"""Key sets are refreshed in the background, in virtual time."""

import asyncio
import dataclasses

import pytest

from lograft.api.oauthbearer_keys import EXPEDITED_INTERVAL_MS, KeySetSource
from lograft.model.errors import InvalidConfig
from lograft.model.seams import Runtime
from lograft.model.settings.oauthbearer import OAuthBearerSettings
from tests.support.identity_provider import key_set, public_entry, rsa_key
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run
from tests.unit.net.test_identity_providers import settings


class Provider:
    """Returns the keys, or fails; remembers when it was asked."""

    def __init__(self, bench: Bench) -> None:
        self.clock = bench.broker.shared.clock
        self.data: bytes | None = key_set(public_entry(rsa_key(), kid="first"))
        self.asked_ms: list[int] = []
        self.source = KeySetSource(bench.broker.shared.runtime, self._settings(), self.read)

    def _settings(self) -> OAuthBearerSettings:
        return dataclasses.replace(
            settings("https://h/"),
            refresh_ms=60_000,
            retry_backoff_ms=100,
            retry_backoff_max_ms=350,
        )

    async def read(self, runtime: Runtime, asked: OAuthBearerSettings) -> bytes:
        self.asked_ms.append(self.clock.mono_ms())
        if self.data is None:
            raise InvalidConfig("not reachable")
        return self.data

    def has_keys(self, key_id: str = "first") -> bool:
        keys = self.source.keys
        return keys is not None and keys.has(key_id)

    @property
    def pauses_ms(self) -> list[int]:
        return [
            after - before for before, after in zip(self.asked_ms, self.asked_ms[1:], strict=False)
        ]


@scenario(lambda body: run(body))
async def test_keys_are_refreshed(bench: Bench, /) -> None:
    provider = Provider(bench)
    assert not provider.has_keys()
    provider.source.start()
    await asyncio.sleep(0.01)
    assert provider.has_keys()
    provider.data = key_set(public_entry(rsa_key(1), kid="second"))
    await asyncio.sleep(60.5)
    assert provider.has_keys("second")
    assert provider.pauses_ms == [60_000]
    provider.source.close()
    await asyncio.sleep(200)
    assert len(provider.asked_ms) == 2


@scenario(lambda body: run(body))
async def test_failures_are_retried_and_old_keys_stay(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider(bench)
    keys, provider.data = provider.data, None
    provider.source.start()
    await asyncio.sleep(1.2)
    assert not provider.has_keys()
    assert provider.pauses_ms == [100, 200, 350, 350]
    provider.data = keys
    await asyncio.sleep(0.5)
    assert provider.has_keys()
    provider.data = b"<html>c4n4ry</html>"
    await asyncio.sleep(61)
    assert provider.has_keys("first")
    assert caplog.text.count("not reachable") == 1
    assert caplog.text.count("cannot use the key set of OAUTHBEARER: the JSON is invalid") == 1
    assert "c4n4ry" not in caplog.text
    provider.source.close()


@scenario(lambda body: run(body))
async def test_unknown_keys_bring_the_refresh_forward_but_not_too_often(bench: Bench, /) -> None:
    provider = Provider(bench)
    provider.source.start()
    await asyncio.sleep(1)
    for _ in range(90):
        provider.source.expedite()
        await asyncio.sleep(0.1)
    assert provider.pauses_ms == [1_000]
    await asyncio.sleep(EXPEDITED_INTERVAL_MS / 1000)
    provider.source.expedite()
    await asyncio.sleep(0.01)
    assert len(provider.asked_ms) == 3
    provider.source.close()
