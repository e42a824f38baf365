import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A Kafka Streams application that counts words: input topic to output topic (word to count), with
 * a repartition topic and a state store between them. Arguments: bootstrap servers, application id,
 * processing guarantee, input, output, state directory. Runs until it is terminated.
 */
public class CountWords {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[5]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[3])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[4], Produced.with(Serdes.String(), Serdes.String()));

        CountDownLatch ended = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            ended.countDown();
        }));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(3);
            return null;
        });
        streams.start();
        ended.await();
    }
}
