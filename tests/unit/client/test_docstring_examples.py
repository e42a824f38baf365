"""Every public name has a docstring with an example, and the examples run unchanged."""

import asyncio
import contextlib
import inspect
import io
import re
import textwrap
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import lograft.client
from lograft.client import (
    Acknowledged,
    Admin,
    Consumer,
    Outgoing,
    Producer,
    TopicPartition,
)
from lograft.testing import Cluster
from tests.support.scenarios import scenario
from tools.docstrings import as_function, is_code


class ExampleInterceptor:
    """The `interceptor` of examples."""

    def on_send(self, record: Outgoing) -> Outgoing:
        return record

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        assert error is None


def example_of(thing: Any) -> str:
    """Returns the paragraphs of its docstring that are Python code."""
    paragraphs = inspect.cleandoc(thing.__doc__ or "").split("\n\n")
    found = ""
    for paragraph in paragraphs[1:]:
        piece = textwrap.dedent(paragraph)
        if is_code(piece):
            found = f"{found}\n\n{piece}" if found else piece
        elif found and is_code(f"{found}\n\n{paragraph}"):
            found = f"{found}\n\n{paragraph}"
    return found


def methods() -> dict[str, Any]:
    return {
        f"{client.__name__}.{name}": method
        for client in (Producer, Consumer, Admin)
        for name, method in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_")
    }


PUBLIC = {name: getattr(lograft.client, name) for name in lograft.client.__all__}
METHODS = methods()
EXAMPLES = {
    name: code for name, thing in {**PUBLIC, **METHODS}.items() if (code := example_of(thing))
}


def names_in_examples() -> set[str]:
    """Returns names with an example, names in examples, and names in the signatures of methods with
    an example."""
    texts = list(EXAMPLES.values())
    texts += [str(inspect.signature(METHODS[name])) for name in METHODS.keys() & EXAMPLES.keys()]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    return {name for name in PUBLIC if name in EXAMPLES or name in words}


def test_every_public_name_has_a_docstring_and_an_example() -> None:
    undocumented = {name for name, thing in PUBLIC.items() if not (thing.__doc__ or "").strip()}
    assert undocumented == set()
    assert PUBLIC.keys() - names_in_examples() == set()


@contextlib.asynccontextmanager
async def open_clients(cluster: Cluster) -> AsyncIterator[dict[str, Any]]:
    """Yields the names that examples use without creating them: open clients and a topic."""
    servers = cluster.bootstrap_servers
    async with (
        Producer(bootstrap_servers=servers) as producer,
        Producer(bootstrap_servers=servers, transactional_id="examples") as transactional,
        Consumer(bootstrap_servers=servers, group_id="examples") as consumer,
        Admin(bootstrap_servers=servers) as admin,
    ):
        await producer.prepare("topic")
        await producer.send_many("greetings", [b"hello"] * 1_000)
        await producer.flush()
        orders = {TopicPartition("orders", index): 0 for index in range(3)}
        await admin.alter_group_offsets("billing", orders)
        consumer.assign([TopicPartition("topic", 0)])
        yield {
            **PUBLIC,
            "producer": producer,
            "transactional": transactional,
            "consumer": consumer,
            "admin": admin,
            "interceptor": ExampleInterceptor(),
        }


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A new cluster for each example, because examples change it."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("topic", partitions=2)
        cluster.create_topic("orders", partitions=3)
        for topic in ("greetings", "old"):
            cluster.create_topic(topic)
        yield cluster


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@scenario()
async def test_example_runs(name: str, cluster: Cluster) -> None:
    code = EXAMPLES[name].replace("localhost:9092", cluster.bootstrap_servers)

    async with asyncio.timeout(60), open_clients(cluster) as names:
        exec(compile(as_function(code), f"example of {name}", "exec"), names)
        with contextlib.redirect_stdout(io.StringIO()):
            await names["example"]()
