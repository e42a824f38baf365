import asyncio
from pathlib import Path
from typing import cast

import pytest

from lograft.cli.serving import embedded_properties
from lograft.model.broker_configs import broker_config
from lograft.model.errors import InvalidConfig, LograftError
from lograft.model.seams import Runtime
from lograft.node import SAFEGUARDS_NOT_BUILT, Node, run


@pytest.mark.parametrize("name", SAFEGUARDS_NOT_BUILT)
def test_a_safeguard_that_is_not_built_is_refused_by_name(name: str) -> None:
    value = "true" if name.endswith(".enable") else "org.example.Something"
    config = broker_config(embedded_properties("data", 9092) | {name: value})
    with pytest.raises(InvalidConfig, match=name):
        Node(config, cast(Runtime, None), halt=lambda reason: None)


def test_a_node_that_cannot_go_on_while_it_starts_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever watches over the process must not take it for one that was told to stop."""

    async def start(node: Node) -> None:
        node._halt("its disk is full")
        await asyncio.Event().wait()

    monkeypatch.setattr(Node, "start", start)
    config = broker_config(embedded_properties(str(tmp_path), 0))
    with pytest.raises(LograftError, match="the node stops: its disk is full"):
        run(config, lambda node: None)
