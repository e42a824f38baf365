from typing import cast

import pytest

from lograft.cli.serving import embedded_properties
from lograft.model.broker_configs import broker_config
from lograft.model.errors import InvalidConfig
from lograft.model.seams import Runtime
from lograft.node import SAFEGUARDS_NOT_BUILT, Node


@pytest.mark.parametrize("name", SAFEGUARDS_NOT_BUILT)
def test_a_safeguard_that_is_not_built_is_refused_by_name(name: str) -> None:
    value = "true" if name.endswith(".enable") else "org.example.Something"
    config = broker_config(embedded_properties("data", 9092) | {name: value})
    with pytest.raises(InvalidConfig, match=name):
        Node(config, cast(Runtime, None), halt=lambda reason: None)
