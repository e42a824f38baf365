"""The examples of docs/design-notes.md run unchanged, in their order, on three nodes."""

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from lograft.testing import Cluster
from tests.compatibility.command_line import done

PAGE = Path(__file__).parents[2] / "docs" / "design-notes.md"
NAMES = (
    *("ConGetBroker", "CheckSub", "PrepareSend", "SetPartitionState", "BecomeLeader"),
    *("AddRaftPartition", "AddFetchPartition", "push", "UpdateDup", "Sub", "Pingpong"),
)

pytestmark = pytest.mark.clients


def test_every_rpc_has_a_row_and_a_chapter() -> None:
    text = PAGE.read_text()
    chapters = " ".join(re.findall(r"^## (.*)$", text, re.MULTILINE))
    for name in NAMES:
        assert re.search(rf"^\| {name}\b", text, re.MULTILINE), name
        assert re.search(rf"\b{name}\b", chapters), name


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert {language for language, _ in blocks} == {"sh", "python"}
    monkeypatch.setenv("LOGRAFT_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("LOGRAFT_CONTEXT", "")
    with Cluster(nodes=3) as cluster:
        monkeypatch.setenv("LOGRAFT_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
        names: dict[str, Any] = {}
        printed = io.StringIO()
        for language, text in blocks:
            if language == "sh":
                for line in text.splitlines():
                    _, *arguments = shlex.split(line)
                    printed.write(done(*arguments).out)
            else:
                code = text.replace("localhost:9092", cluster.bootstrap_servers)
                with redirect_stdout(printed):
                    exec(compile(code, str(PAGE), "exec"), names)
    output = printed.getvalue()
    for words in (
        "orders-2 is led by 127.0.0.1:",
        "position 0",
        "rejected: ",
        "orders  subscription mode ptp: only group billing",
        "all means: in the logs of all in-sync replicas",
        "0 means: sent; the broker did not confirm it",
        "['raft', 'raft', 'isr']",
        "Broker 2 now leads",
        "led by 1",
        "classic Empty 0 members",
    ):
        assert words in output, output
    assert re.search(r"^subscription.mode +ptp +topic$", output, re.MULTILINE), output
    # Six were sent; the first poll returns those that have been fetched by then.
    assert re.search(r"^[1-6] records$", output, re.MULTILINE), output
