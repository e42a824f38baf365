"""A Lograft node for tests with Testcontainers: `with LograftContainer() as lograft: …`."""

import socket

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy


class LograftContainer(DockerContainer):
    """Clients get the node's address from the node itself, so the container listens on the port
    under which this machine reaches it."""

    def __init__(self, image: str = "lograft") -> None:
        port = _free_port()
        self.bootstrap_servers = f"localhost:{port}"
        super().__init__(image)
        self.with_bind_ports(port, port)
        self.with_env("KAFKA_LISTENERS", f"PLAINTEXT://:{port},CONTROLLER://localhost:9093")
        self.with_env("KAFKA_ADVERTISED_LISTENERS", f"PLAINTEXT://{self.bootstrap_servers}")
        self.waiting_for(LogMessageWaitStrategy("Lograft is listening on"))


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return int(server.getsockname()[1])
