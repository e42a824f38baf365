"""A network of its own for the nodes of a run: a namespace each, joined by a bridge.

A cut sends what is for another node to an address that nobody has, in each direction on its own:
a cut can be whole or one-way, and all is silent. (A route that leads nowhere would not do: its
sender is told at once.) Clients stay in the namespace of the test and reach everybody. Needs root
and `ip`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.compatibility.clusters import Place

PREFIX: Final = "lograft"
#: Reserved for tests of network devices (RFC 2544): no real network has it.
NETWORKS: Final = "198.18"
#: An address of the link that no interface has.
NOBODY: Final = "02:00:00:00:00:99"


def can_make_networks() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None and run_ip("netns", "list").ok


class run_ip:
    def __init__(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        self.ok = done.returncode == 0
        self.said = done.stderr

    def or_fail(self) -> None:
        assert self.ok, self.said


class Network:
    def __init__(self, nodes: int) -> None:
        self._nodes = range(1, nodes + 1)
        self._cuts: set[tuple[int, int]] = set()
        # Two runs on one machine shall not meet.
        self._id = f"{os.getpid() % 10_000}"
        self._network = f"{NETWORKS}.{os.getpid() % 255}"
        self._bridge = f"lgb{self._id}"

    def name(self, node: int) -> str:
        return f"{PREFIX}-{self._id}-{node}"

    def host(self, node: int) -> str:
        return f"{self._network}.{node}"

    def places(self) -> list[Place]:
        return [
            Place(self.host(node), ("ip", "netns", "exec", self.name(node))) for node in self._nodes
        ]

    @contextmanager
    def made(self) -> Iterator["Network"]:
        try:
            self._make()
            yield self
        finally:
            self._remove()

    def _make(self) -> None:
        run_ip("link", "add", self._bridge, "type", "bridge").or_fail()
        run_ip("addr", "add", f"{self._network}.254/24", "dev", self._bridge).or_fail()
        run_ip("link", "set", self._bridge, "up").or_fail()
        for node in self._nodes:
            name, ours, theirs = self.name(node), f"lgv{self._id}{node}", self._device(node)
            run_ip("netns", "add", name).or_fail()
            run_ip("link", "add", ours, "type", "veth", "peer", "name", theirs).or_fail()
            run_ip("link", "set", ours, "master", self._bridge).or_fail()
            run_ip("link", "set", ours, "up").or_fail()
            run_ip("link", "set", theirs, "netns", name).or_fail()
            inside = ("-n", name)
            run_ip(*inside, "addr", "add", f"{self.host(node)}/24", "dev", theirs).or_fail()
            run_ip(*inside, "link", "set", theirs, "up").or_fail()
            run_ip(*inside, "link", "set", "lo", "up").or_fail()

    def _remove(self) -> None:
        for node in self._nodes:
            run_ip("netns", "del", self.name(node))
            run_ip("link", "del", f"lgv{self._id}{node}")
        run_ip("link", "del", self._bridge)

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing gets from one to the other; the way back is another cut."""
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            self._neighbour("replace", sender, receiver, "lladdr", NOBODY, "nud", "permanent")

    def isolate(self, node: int) -> None:
        for other in self._nodes:
            if other != node:
                self.cut(node, other)
                self.cut(other, node)

    def heal(self) -> None:
        for sender, receiver in sorted(self._cuts):
            self._neighbour("del", sender, receiver)
        self._cuts.clear()

    def _device(self, node: int) -> str:
        return f"lgw{self._id}{node}"

    def _neighbour(self, what: str, sender: int, receiver: int, *more: str) -> None:
        """What the sender's machine knows of the receiver's address on the link."""
        place = ("dev", self._device(sender), *more)
        run_ip("-n", self.name(sender), "neigh", what, self.host(receiver), *place).or_fail()
