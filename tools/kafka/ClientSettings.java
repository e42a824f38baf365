import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the settings of Kafka's clients: client, name, type and default, a line each. */
public class ClientSettings {
    private static void print(String client, ConfigDef settings) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            String value = key.hasDefault() ? String.valueOf(key.defaultValue) : "REQUIRED";
            System.out.println(String.join("\t", client, key.name, key.type.toString(), value));
        }
    }

    public static void main(String[] arguments) {
        print("producer", ProducerConfig.configDef());
        print("consumer", ConsumerConfig.configDef());
        print("admin", AdminClientConfig.configDef());
    }
}
