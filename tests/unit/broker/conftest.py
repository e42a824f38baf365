from collections.abc import Iterator

import pytest

from tests.unit.broker.bench import close_machines


@pytest.fixture(autouse=True)
def _no_machine_outlives_its_test() -> Iterator[None]:
    yield
    close_machines()
