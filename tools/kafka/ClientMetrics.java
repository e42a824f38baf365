import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Uses Kafka's clients at a cluster, and prints their metrics: client, group, name and tags, a line each. */
public class ClientMetrics {
    private static final TreeSet<String> LINES = new TreeSet<>();

    private static void collect(String client, Map<MetricName, ? extends Metric> metrics) {
        for (MetricName name : metrics.keySet()) {
            String tags = String.join(",", new TreeSet<>(name.tags().keySet()));
            LINES.add(String.join("\t", client, name.group(), name.name(), tags));
        }
    }

    private static Properties settings(String servers, Object... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("metrics.recording.level", "TRACE");
        for (int at = 0; at < more.length; at += 2) {
            settings.put(more[at], more[at + 1]);
        }
        return settings;
    }

    private static void consume(String servers, String protocol) {
        Properties settings = settings(
            servers, "group.id", protocol, "group.protocol", protocol, "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("metered"));
            while (consumer.poll(Duration.ofMillis(200)).isEmpty()) {}
            consumer.commitSync();
            consumer.poll(Duration.ofMillis(200));
            collect("consumer", consumer.metrics());
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        try (Admin admin = Admin.create(settings(servers));
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                    settings(servers), new ByteArraySerializer(), new ByteArraySerializer())) {
            admin.createTopics(List.of(new NewTopic("metered", 1, (short) 1))).all().get();
            producer.send(new ProducerRecord<>("metered", new byte[10])).get();
            consume(servers, "classic");
            consume(servers, "consumer");
            collect("producer", producer.metrics());
            collect("admin", admin.metrics());
        }
        LINES.forEach(System.out::println);
    }
}
