// A Lograft node for tests with Testcontainers: const lograft = await startLograft();

import net from "node:net";
import { GenericContainer, Wait } from "testcontainers";

/**
 * Starts a node. Clients get the node's address from the node itself, so the container listens on
 * the port under which this machine reaches it.
 *
 * @param {string} image
 */
export async function startLograft(image = "lograft") {
  const port = await freePort();
  const bootstrapServers = `localhost:${port}`;
  const container = await new GenericContainer(image)
    .withExposedPorts({ container: port, host: port })
    .withEnvironment({
      KAFKA_LISTENERS: `PLAINTEXT://:${port},CONTROLLER://localhost:9093`,
      KAFKA_ADVERTISED_LISTENERS: `PLAINTEXT://${bootstrapServers}`,
    })
    .withWaitStrategy(Wait.forLogMessage("Lograft is listening on"))
    .start();
  return { container, bootstrapServers };
}

/** @returns {Promise<number>} */
function freePort() {
  return new Promise((resolve, reject) => {
    const server = net.createServer();
    server.once("error", reject);
    server.listen(0, "localhost", () => {
      const { port } = /** @type {net.AddressInfo} */ (server.address());
      server.close(() => resolve(port));
    });
  });
}
