"""Tests that the functions which mutants replace exist."""

import pytest

from campaigns.acls.mutants import ACL_MUTANTS
from campaigns.cluster_mutants import CLUSTER_MUTANTS
from campaigns.groups.mutants import GROUP_MUTANTS
from campaigns.mutants import MUTANTS, Patch
from campaigns.node_mutants import NODE_MUTANTS
from campaigns.raft_mutants import RAFT_MUTANTS
from lograft.consensus.core import RaftCore

PATCHES: dict[str, list[Patch]] = {
    **{f"storage: {name}": patches for name, (_, patches) in MUTANTS.items()},
    **{f"node: {name}": patches for name, (_, patches) in NODE_MUTANTS.items()},
    **{f"cluster: {name}": mutant.patches for name, mutant in CLUSTER_MUTANTS.items()},
    **{f"groups: {name}": mutant.patches for name, mutant in GROUP_MUTANTS.items()},
    **{f"acls: {name}": patches for name, (_, patches) in ACL_MUTANTS.items()},
}


@pytest.mark.parametrize("name", PATCHES)
def test_mutant_replaces_existing_attributes(name: str) -> None:
    missing = [attribute for owner, attribute, _ in PATCHES[name] if not hasattr(owner, attribute)]
    assert missing == []


@pytest.mark.parametrize("mutant", RAFT_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_raft_mutant_overrides_existing_methods(mutant: type[RaftCore]) -> None:
    methods = [name for name in vars(mutant) if not name.startswith("__")]
    assert [name for name in methods if not hasattr(RaftCore, name)] == []
