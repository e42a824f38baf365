import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.com.google.protobuf.InvalidProtocolBufferException;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;

/** A metrics reporter with which Kafka accepts the metrics of clients; prints a line for each push. */
public class TelemetryReceiver implements MetricsReporter, ClientTelemetry {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            int size = payload.data().remaining();
            System.out.println("PUSHED " + context.clientId() + " " + size + " " + count(payload.data()));
        };
    }

    /** Returns the number of metrics. The broker rejects a push if this fails. */
    private static long count(ByteBuffer data) {
        try {
            return MetricsData.parseFrom(data.duplicate()).getResourceMetricsList().stream()
                .flatMap(each -> each.getScopeMetricsList().stream())
                .mapToLong(scope -> scope.getMetricsCount())
                .sum();
        } catch (InvalidProtocolBufferException error) {
            throw new IllegalArgumentException(error);
        }
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
