import java.net.InetAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * Answers with Kafka's own classes, one line for each line of the input but those that begin with a word.
 *
 *   rate|bucket SAMPLES SECONDS LIMIT   begins a measurement; then lines of TIME_MS VALUE
 *                                       get the measured value and the throttle time
 *   limits USER CLIENT LIMIT ...        begins a set of limits ("*": the default, "-": none; names
 *                                       are URL-encoded); then lines of /USER/CLIENT
 *                                       get the limit and who shares it
 */
public class QuotaOracle {
    static String decode(String name) { return Sanitizer.desanitize(name); }

    static Optional<ConfigEntity> user(String name) {
        if (name.equals("-")) return Optional.empty();
        if (name.equals("*")) return Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
        return Optional.of(new ClientQuotaManager.UserEntity(Sanitizer.sanitize(decode(name))));
    }

    static Optional<ConfigEntity> client(String name) {
        if (name.equals("-")) return Optional.empty();
        if (name.equals("*")) return Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
        return Optional.of(new ClientQuotaManager.ClientIdEntity(decode(name)));
    }

    public static void main(String[] args) throws Exception {
        Scanner input = new Scanner(System.in);
        StringBuilder output = new StringBuilder();
        MetricConfig config = null;
        Rate rate = null;
        TokenBucket bucket = null;
        double limit = 0;
        ClientQuotaManager manager = null;
        while (input.hasNextLine()) {
            String line = input.nextLine();
            String[] words = line.split(" ");
            if (words[0].equals("rate") || words[0].equals("bucket")) {
                limit = Double.parseDouble(words[3]);
                config = new MetricConfig()
                    .samples(Integer.parseInt(words[1]))
                    .timeWindow(Long.parseLong(words[2]), TimeUnit.SECONDS)
                    .quota(new Quota(limit, true));
                rate = words[0].equals("rate") ? new Rate() : null;
                bucket = rate == null ? new TokenBucket() : null;
            } else if (words[0].equals("limits")) {
                if (manager != null) manager.shutdown();
                manager = new ClientQuotaManager(
                    new ClientQuotaManagerConfig(), new Metrics(), QuotaType.PRODUCE, Time.SYSTEM, "");
                for (int at = 1; at < words.length; at += 3)
                    manager.updateQuota(
                        user(words[at]), client(words[at + 1]),
                        Optional.of(new Quota(Double.parseDouble(words[at + 2]), true)));
            } else if (words[0].startsWith("/")) {
                String[] names = line.split("/", -1);
                KafkaPrincipal principal = new KafkaPrincipal("User", decode(names[1]));
                Session session = new Session(principal, InetAddress.getLoopbackAddress());
                Map<String, String> tags = manager.getOrCreateQuotaSensors(session, decode(names[2])).metricTags();
                double found = manager.quota(decode(names[1]), decode(names[2])).bound();
                output.append(found >= Long.MAX_VALUE ? "none" : Double.toString(found))
                    .append(" /").append(tags.get("user"))
                    .append("/").append(Sanitizer.sanitize(tags.get("client-id"))).append('\n');
            } else {
                long nowMs = Long.parseLong(words[0]);
                double value = Double.parseDouble(words[1]);
                double measured;
                double throttle;
                if (rate != null) {
                    rate.record(config, value, nowMs);
                    measured = rate.measure(config, nowMs);
                    throttle = measured <= limit ? 0 : (measured - limit) / limit * rate.windowSize(config, nowMs);
                } else {
                    bucket.record(config, value, nowMs);
                    measured = bucket.measure(config, nowMs);
                    throttle = measured >= 0 ? 0 : -measured / limit * 1000;
                }
                output.append(measured).append(' ').append(Math.round(throttle)).append('\n');
            }
        }
        System.out.print(output);
        System.exit(0);
    }
}
