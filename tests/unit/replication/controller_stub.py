"""The controller as a list of states: registrations, fencing, ISR and ELR, elections (KIP-966).

Elects from the ISR, then from the ELR, and uncleanly only if allowed. All committed states are
kept, so that brokers can lag behind.
"""

from typing import NamedTuple

from lograft.model.errors import ErrorCode
from lograft.model.types import NO_NODE, BrokerEpoch, Epoch, NodeId
from lograft.replication.types import (
    NO_BROKER_EPOCH,
    AcceptedIsr,
    Assignment,
    IsrProposal,
)


class Registration(NamedTuple):
    epoch: BrokerEpoch
    fenced: bool


class Image(NamedTuple):
    assignment: Assignment
    elr: frozenset[NodeId]
    brokers: dict[NodeId, Registration]


class ControllerStub:
    def __init__(
        self,
        nodes: tuple[NodeId, ...],
        *,
        replicas: int,
        min_isr: int,
        unclean_elections: bool,
    ) -> None:
        first_replicas = nodes[:replicas]
        self.min_isr = min(min_isr, replicas)
        self.unclean_elections = unclean_elections
        #: Mutants override these.
        self.checks_broker_epochs = True
        self.detects_unclean_shutdown = True
        self.new_epoch_without_replica = True
        #: The target of a reassignment, which completes when all of these are in sync.
        self.target: tuple[NodeId, ...] = ()
        brokers = {node: Registration(BrokerEpoch(node), False) for node in nodes}
        first = Assignment(first_replicas, first_replicas, nodes[0], Epoch(0), 0)
        self.history = [Image(first, frozenset(), brokers)]
        self._epochs_given = int(max(nodes))

    @property
    def image(self) -> Image:
        return self.history[-1]

    def is_active(self, node: NodeId) -> bool:
        return not self.image.brokers[node].fenced

    def register(self, node: NodeId, *, clean: bool) -> BrokerEpoch:
        """A new process of the broker. After an unclean stop its log may lack any records."""
        self._epochs_given += 1
        epoch = BrokerEpoch(self._epochs_given)
        unclean = not clean and self.detects_unclean_shutdown
        self._set_broker(node, Registration(epoch, True))
        self._without(node, lost=frozenset([node]) if unclean else frozenset())
        return epoch

    def fence(self, node: NodeId) -> None:
        self._set_broker(node, Registration(self.image.brokers[node].epoch, True))
        self._without(node)

    def unfence(self, node: NodeId) -> None:
        self._set_broker(node, Registration(self.image.brokers[node].epoch, False))
        if self.image.assignment.leader == NO_NODE:
            self._write(self.image.assignment.isr)

    def move_leader(self, node: NodeId) -> None:
        """Preferred leader election: another member of the ISR becomes the leader."""
        image = self.image
        if node in image.assignment.isr and self.is_active(node):
            self._write(image.assignment.isr, prefer=node)

    def reassign(self, target: tuple[NodeId, ...]) -> None:
        before = self.image.assignment
        if self.target or set(target) == set(before.replicas) or before.leader == NO_NODE:
            return
        self.target = target
        leaving = tuple(node for node in before.replicas if node not in target)
        self._write(before.isr, replicas=target + leaving)

    def alter_partition(
        self, node: NodeId, epoch: BrokerEpoch, proposal: IsrProposal
    ) -> AcceptedIsr | ErrorCode:
        image = self.image
        now = image.assignment
        if image.brokers[node].epoch != epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if proposal.leader_epoch < now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch != now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        assert now.leader == node, (now, node)
        for member in proposal.isr:
            registered = image.brokers[member.node_id]
            known = registered.epoch
            if registered.fenced or (
                self.checks_broker_epochs and member.broker_epoch not in (NO_BROKER_EPOCH, known)
            ):
                return ErrorCode.INELIGIBLE_REPLICA
        isr = tuple(member.node_id for member in proposal.isr)
        if isr != now.isr or proposal.recovering != now.recovering:
            self._write(isr, recovering=proposal.recovering)
        now = self.image.assignment
        if now.leader != node:
            return ErrorCode.NEW_LEADER_ELECTED
        return AcceptedIsr(now.leader_epoch, now.partition_epoch, now.isr, now.recovering)

    def _set_broker(self, node: NodeId, registration: Registration) -> None:
        image = self.image
        self.history.append(image._replace(brokers={**image.brokers, node: registration}))

    def _without(self, node: NodeId, *, lost: frozenset[NodeId] = frozenset()) -> None:
        image = self.image
        isr = tuple(member for member in image.assignment.isr if member != node)
        if isr != image.assignment.isr or lost & image.elr:
            self._write(isr, lost=lost)

    def _write(
        self,
        isr: tuple[NodeId, ...],
        *,
        lost: frozenset[NodeId] = frozenset(),
        recovering: bool | None = None,
        prefer: NodeId | None = None,
        replicas: tuple[NodeId, ...] = (),
    ) -> None:
        image = self.image
        before = image.assignment
        replicas = replicas or before.replicas
        if self.target and set(self.target) <= set(isr):
            replicas, self.target = self.target, ()
            isr = tuple(node for node in isr if node in replicas)
        holders = ((image.elr | set(before.isr)) - lost) & set(replicas)
        leader = before.leader if prefer is None else prefer
        recovers = before.recovering if recovering is None else recovering
        if leader not in isr or not self.is_active(leader):
            up = [node for node in replicas if self.is_active(node)]
            in_sync = [node for node in up if node in isr]
            eligible = [node for node in up if node in holders]
            if in_sync:
                leader = in_sync[0]
            elif eligible:
                leader = eligible[0]
                isr = (leader,)
            elif up and self.unclean_elections and not isr and not holders:
                leader = up[0]
                isr = (leader,)
                recovers = True
            else:
                leader = NO_NODE
        # A replica that is removed and returns must not be mistaken for the earlier one.
        removes = self.new_epoch_without_replica and not set(before.replicas) <= set(replicas)
        elr = frozenset() if len(isr) >= self.min_isr else frozenset(holders - set(isr))
        self.history.append(
            image._replace(
                elr=elr,
                assignment=Assignment(
                    replicas,
                    tuple(sorted(isr)),
                    leader,
                    Epoch(before.leader_epoch + (leader != before.leader or removes)),
                    before.partition_epoch + 1,
                    recovers,
                ),
            )
        )
