from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Listener,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@scenario(run)
async def test_controller_registers_its_endpoints(bench: Bench, /) -> None:
    request = ControllerRegistrationRequest(
        controller_id=1,
        incarnation_id=UUID(int=4),
        listeners=[Listener(name="CONTROLLER", host="localhost", port=9093)],
    )
    response = await bench.ask(request, 0, ControllerRegistrationResponse, role="controller")
    assert response.error_code == 0
    assert bench.broker.image.controllers[1].endpoints[0].port == 9093
    bench.controller.down = True
    response = await bench.ask(request, 0, ControllerRegistrationResponse, role="controller")
    assert response.error_code == ErrorCode.NOT_CONTROLLER
