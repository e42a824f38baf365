"""A separate network for the nodes of a run: one namespace per node, connected by a bridge.

A cut sends packets for another node to an unused link-layer address, separately for each direction,
so cuts can be complete or one-way, and packets are dropped silently. (With a blackhole route the
sender would get an error immediately.) Clients stay in the namespace of the test and reach all
nodes. Needs root and `ip`."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.compatibility.clusters import Place

PREFIX: Final = "lograft"
#: Reserved for tests of network devices (RFC 2544), so no real network uses it.
NETWORKS: Final = "198.18"
#: A link-layer address that no interface has.
UNUSED_ADDRESS: Final = "02:00:00:00:00:99"


def can_create_networks() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None and run_ip("netns", "list").ok


class run_ip:
    def __init__(self, *arguments: str) -> None:
        result = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        self.ok = result.returncode == 0
        self.error = result.stderr

    def or_fail(self) -> None:
        assert self.ok, self.error


class Network:
    def __init__(self, nodes: int) -> None:
        self._nodes = range(1, nodes + 1)
        self._cuts: set[tuple[int, int]] = set()
        # Several runs on one machine must not conflict.
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
    def created(self) -> Iterator["Network"]:
        try:
            self._create()
            yield self
        finally:
            self._remove()

    def _create(self) -> None:
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
        """Drops packets from sender to receiver; the other direction is a separate cut."""
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            self._change_neighbour(
                "replace", sender, receiver, "lladdr", UNUSED_ADDRESS, "nud", "permanent"
            )

    def isolate(self, node: int) -> None:
        for other in self._nodes:
            if other != node:
                self.cut(node, other)
                self.cut(other, node)

    def heal(self) -> None:
        for sender, receiver in sorted(self._cuts):
            self._change_neighbour("del", sender, receiver)
        self._cuts.clear()

    def _device(self, node: int) -> str:
        return f"lgw{self._id}{node}"

    def _change_neighbour(self, action: str, sender: int, receiver: int, *more: str) -> None:
        """Changes the entry for the receiver in the sender's neighbour table."""
        place = ("dev", self._device(sender), *more)
        run_ip("-n", self.name(sender), "neigh", action, self.host(receiver), *place).or_fail()
