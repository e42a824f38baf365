"""Keeps the entry of this controller in the voter set up to date (KIP-853).

A voter whose endpoints have changed sends UpdateRaftVoter to the leader. A static voter
(kraft.version 0) sends it to every new leader, which needs its supported versions to upgrade
kraft.version. With controller.quorum.auto.join.enable a controller that is not a voter sends
AddRaftVoter; if the same node with another disk still is a voter, it removes that one first.
"""

import asyncio
import logging
from typing import Final

from lograft.broker.errors import NotController, PeerLost, PeerUnreachable
from lograft.broker.links.peers import Peers
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.consensus.messages import Error, UpdateVoterRequest
from lograft.consensus.types import ReplicaKey, Voter
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_EPOCH, ZERO_UUID, Epoch
from lograft.wire.apis import Versions
from lograft.wire.messages import add_raft_voter, update_raft_voter
from lograft.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

LOGGER: Final = logging.getLogger(__name__)

LANE: Final = "raft voters"
ADD_VERSIONS: Final = Versions(1, 1)
REMOVE_VERSIONS: Final = Versions(0, 0)
UPDATE_VERSIONS: Final = Versions(0, 0)


class VoterUpdater:
    def __init__(self, driver: RaftDriver, peers: Peers, config: BrokerConfig) -> None:
        self._driver = driver
        self._peers = peers
        self._config = config
        self._listener = config.controller_listener_names[0]
        #: The epoch whose leader knows this static voter.
        self._described_in: Epoch = NO_EPOCH
        #: The leader responds only after a new voter has caught up.
        self._timeout_ms = driver.settings.voter_change_timeout_ms + config.request_timeout_ms

    async def run(self) -> None:
        """A task of the node."""
        while True:
            try:
                await self.check()
            except (NotController, PeerLost, PeerUnreachable) as error:
                LOGGER.info("could not update the voter set, retrying: %s", error)
            await asyncio.sleep(self._config.controller_quorum_fetch_timeout_ms / 1000)

    async def check(self) -> None:
        """Sends the next request that is needed to correct the voter set, if any."""
        driver = self._driver
        leader = driver.leader_endpoint()
        if leader is None:
            return
        if driver.voters.is_static:
            await self._describe(leader)
            return
        if driver.quorum.kraft_version == 0:
            return
        mine = driver.voters.find(driver.me.node_id)
        if mine is not None and mine.key == driver.me:
            # No other voter needs the endpoints of a sole voter.
            if len(driver.voters.voters) > 1 and set(mine.endpoints) != set(driver.endpoints):
                await self._update(mine, leader)
        elif self._config.controller_quorum_auto_join_enable:
            if mine is not None and mine.key.directory_id != ZERO_UUID:
                await self._remove(mine.key, leader)
            else:
                await self._add(leader)

    async def _describe(self, leader: Address) -> None:
        driver, epoch = self._driver, self._driver.epoch
        if driver.is_leader or epoch == self._described_in or not driver.voters.has(driver.me):
            return
        code = await self._send_update(driver.describe_voter(), leader)
        # UNSUPPORTED_VERSION: the leader cannot upgrade kraft.version and does not need it.
        if code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            self._described_in = epoch
        else:
            self._log_result("report itself to the leader", code)

    async def _update(self, mine: Voter, leader: Address) -> None:
        driver = self._driver
        moved = mine._replace(endpoints=driver.endpoints)
        if driver.is_leader:
            response = await driver.ask(UpdateVoterRequest(voter=moved))
            code = ErrorCode.NONE if response.error is Error.NONE else -1
        else:
            code = await self._send_update(moved, leader)
        self._log_result("update its endpoints", code)

    async def _send_update(self, voter: Voter, leader: Address) -> int:
        driver = self._driver
        request = update_raft_voter.UpdateRaftVoterRequest(
            cluster_id=driver.cluster_id,
            current_leader_epoch=driver.epoch,
            voter_id=voter.key.node_id,
            voter_directory_id=voter.key.directory_id,
            listeners=[
                update_raft_voter.Listener(name=each.name, host=each.host, port=each.port)
                for each in voter.endpoints
            ],
            kraft_version_feature=update_raft_voter.KRaftVersionFeature(
                min_supported_version=voter.kraft_version_min,
                max_supported_version=voter.kraft_version_max,
            ),
        )
        reply = await self._peers.request(
            leader,
            request,
            UPDATE_VERSIONS,
            update_raft_voter.UpdateRaftVoterResponse,
            timeout_ms=self._timeout_ms,
            lane=LANE,
            listener=self._listener,
        )
        return reply.error_code

    async def _add(self, leader: Address) -> None:
        driver = self._driver
        request = add_raft_voter.AddRaftVoterRequest(
            cluster_id=driver.cluster_id,
            timeout_ms=driver.settings.voter_change_timeout_ms,
            voter_id=driver.me.node_id,
            voter_directory_id=driver.me.directory_id,
            listeners=[
                add_raft_voter.Listener(name=each.name, host=each.host, port=each.port)
                for each in driver.endpoints
            ],
            ack_when_committed=False,
        )
        reply = await self._peers.request(
            leader,
            request,
            ADD_VERSIONS,
            add_raft_voter.AddRaftVoterResponse,
            timeout_ms=self._timeout_ms,
            lane=LANE,
            listener=self._listener,
        )
        self._log_result("join the voters", reply.error_code)

    async def _remove(self, key: ReplicaKey, leader: Address) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=self._driver.cluster_id,
            voter_id=key.node_id,
            voter_directory_id=key.directory_id,
        )
        reply = await self._peers.request(
            leader,
            request,
            REMOVE_VERSIONS,
            RemoveRaftVoterResponse,
            timeout_ms=self._timeout_ms,
            lane=LANE,
            listener=self._listener,
        )
        self._log_result("remove the voter with its previous disk", reply.error_code)

    def _log_result(self, action: str, code: int) -> None:
        node_id = self._driver.me.node_id
        if code:
            LOGGER.info("controller %d could not %s, retrying: error %d", node_id, action, code)
        else:
            LOGGER.info("the quorum accepted the request of controller %d to %s", node_id, action)
