"""The file `quorum-state`: epoch, leader and vote of a replica of the metadata log, as JSON.

Version 1 belongs to dynamic quorums (kraft.version 1), version 0 to static ones.
"""

import json
from typing import Any, Final

from lograft.broker.errors import MetadataCorrupt
from lograft.consensus.types import HardState, ReplicaKey, VoterSet
from lograft.model.errors import InvalidInput
from lograft.model.seams import Disk
from lograft.model.types import NO_NODE, ZERO_UUID, Epoch, NodeId
from lograft.model.uuids import uuid_from_text, uuid_to_text
from lograft.storage.log_dirs import write_atomically

QUORUM_STATE: Final = "quorum-state"


def read_quorum_state(disk: Disk, folder: str) -> HardState:
    """Returns the stored state. A replica without the file has never voted."""
    path = f"{folder}/{QUORUM_STATE}"
    if not disk.exists(path):
        return HardState()
    try:
        state = json.loads(disk.read(path))
        if state["data_version"] not in (0, 1):
            raise MetadataCorrupt(
                f"{path} has version {state['data_version']}, which this release does not support:"
                " a newer release wrote it"
            )
        voted = int(state.get("votedId", -1))
        directory = uuid_from_text(state.get("votedDirectoryId") or uuid_to_text(ZERO_UUID))
        return HardState(
            Epoch(int(state["leaderEpoch"])),
            NodeId(int(state["leaderId"])),
            None if voted < 0 else ReplicaKey(NodeId(voted), directory),
        )
    except (ValueError, KeyError, TypeError, AttributeError, InvalidInput) as error:
        # Voting again without the last vote could elect two leaders in one epoch.
        raise MetadataCorrupt(
            f"{path} cannot be read ({error}): restore it from a backup"
        ) from None


def write_quorum_state(
    disk: Disk, folder: str, state: HardState, *, kraft_version: int, voters: VoterSet
) -> None:
    """Writes the state to disk; blocks."""
    voted = state.voted_for
    content: dict[str, Any]
    if kraft_version == 0:
        content = {
            "clusterId": "",
            "leaderId": int(state.leader),
            "leaderEpoch": int(state.epoch),
            "votedId": int(NO_NODE if voted is None else voted.node_id),
            "appliedOffset": 0,
            "currentVoters": [{"voterId": int(node_id)} for node_id in voters.node_ids],
            "data_version": 0,
        }
    else:
        content = {
            "leaderId": int(state.leader),
            "leaderEpoch": int(state.epoch),
            "votedId": int(NO_NODE if voted is None else voted.node_id),
            "votedDirectoryId": uuid_to_text(ZERO_UUID if voted is None else voted.directory_id),
            "data_version": 1,
        }
    data = json.dumps(content, separators=(",", ":")).encode()
    write_atomically(disk, f"{folder}/{QUORUM_STATE}", data)
