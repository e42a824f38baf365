"""Every API and version that a listener serves, with regular and hostile requests."""

import pytest

from tests.fuzz import budget
from tests.fuzz.campaign import Campaign

#: Few enough to analyze a failure, enough to build up state.
REQUESTS_PER_SEED = 400

pytestmark = pytest.mark.fuzz


@pytest.mark.timeout(0)
def test_node_survives_any_request() -> None:
    acknowledged = 0
    for seed in budget.seeds(share=0.6):
        campaign = Campaign(seed)
        campaign.run(REQUESTS_PER_SEED)
        acknowledged += campaign.ledger.acknowledged
    assert acknowledged, "nothing was ever written: the fuzzer tests nothing"


@pytest.mark.timeout(0)
def test_every_api_and_version_is_requested() -> None:
    for seed in budget.seeds(share=0.1):
        campaign = Campaign(seed)
        campaign.run_every_version(times=2)
        assert campaign.answers
