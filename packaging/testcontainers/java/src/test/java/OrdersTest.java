import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;

class OrdersTest {
    @Test
    void anOrderIsConsumed() throws Exception {
        try (LograftContainer lograft = new LograftContainer()) {
            lograft.start();
            String servers = lograft.getBootstrapServers();
            Map<String, Object> producing = Map.of("bootstrap.servers", servers);
            Map<String, Object> consuming =
                    Map.of(
                            "bootstrap.servers", servers,
                            "group.id", "billing",
                            "auto.offset.reset", "earliest");
            StringSerializer serializer = new StringSerializer();
            StringDeserializer deserializer = new StringDeserializer();
            try (var producer = new KafkaProducer<>(producing, serializer, serializer);
                    var consumer = new KafkaConsumer<>(consuming, deserializer, deserializer)) {
                producer.send(new ProducerRecord<>("orders", "tea")).get();
                consumer.subscribe(List.of("orders"));
                ConsumerRecords<String, String> records = ConsumerRecords.empty();
                for (int attempt = 0; attempt < 30 && records.isEmpty(); attempt++) {
                    records = consumer.poll(Duration.ofSeconds(1));
                }
                assertEquals("tea", records.iterator().next().value());
            }
        }
    }
}
