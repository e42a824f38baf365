import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A metrics reporter with which Kafka accepts the metrics of clients; prints a line for each push. */
public class TelemetryReceiver implements MetricsReporter, ClientTelemetry {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> System.out.println(
            "PUSHED " + context.clientId() + " " + payload.data().remaining());
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}

    @Override
    public void configure(Map<String, ?> configs) {}
}
