"""The examples of docs/client.md run unchanged."""

import asyncio
import contextlib
import io
import re
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

from lograft.client import Producer
from lograft.testing import Cluster

GUIDE = Path(__file__).parents[3] / "docs" / "client.md"
EXAMPLES = re.findall(r"## ([^\n]*)\n|```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def examples() -> list[Any]:
    chapter = ""
    found: list[Any] = []
    for heading, code in EXAMPLES:
        chapter = heading or chapter
        if code:
            found.append(pytest.param(code, id=f"{chapter} {len(found)}"))
    return found


@pytest.mark.parametrize("code", examples())
def test_example_runs(code: str) -> None:
    async def run(servers: str) -> None:
        async with asyncio.timeout(100):
            async with Producer(bootstrap_servers=servers) as producer:
                await producer.send_many("greetings", [b"hello"] * 10)
            names: dict[str, Any] = {"asyncio": asyncio}
            body = textwrap.indent(code.replace("localhost:9092", servers), "    ")
            exec(compile(f"async def example():\n{body}", "docs/client.md", "exec"), names)
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore", BytesWarning)  # readers print bytes
                await names["example"]()

    with Cluster(nodes=1) as cluster:
        for topic in ("greetings", "orders", "loud"):
            cluster.create_topic(topic)
        asyncio.run(run(cluster.bootstrap_servers))


def test_there_are_examples() -> None:
    assert len(examples()) >= 8
