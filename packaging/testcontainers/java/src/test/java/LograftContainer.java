import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.util.List;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.utility.DockerImageName;

/**
 * A Lograft node for tests with Testcontainers. Clients get the node's address from the node
 * itself, so the container listens on the port under which this machine reaches it.
 */
public final class LograftContainer extends GenericContainer<LograftContainer> {
    private final String bootstrapServers;

    public LograftContainer() {
        this("lograft");
    }

    public LograftContainer(String image) {
        super(DockerImageName.parse(image));
        int port = freePort();
        bootstrapServers = "localhost:" + port;
        setPortBindings(List.of(port + ":" + port));
        withEnv("KAFKA_LISTENERS", "PLAINTEXT://:" + port + ",CONTROLLER://localhost:9093");
        withEnv("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://" + bootstrapServers);
        waitingFor(Wait.forLogMessage(".*Lograft is listening on.*\\n", 1));
    }

    public String getBootstrapServers() {
        return bootstrapServers;
    }

    private static int freePort() {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
