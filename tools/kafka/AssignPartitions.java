import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Decides as the leader of a classic group who reads what. A line of input is a group: the assignor,
 * topics and members, separated by spaces. Topics are name=racks,racks,...;name=... with the racks of
 * each partition's replicas joined by "."; members are id:instance:rack:topic,topic:owned,owned;... and
 * what they do not have is empty; owned partitions are topic/0. A line of output is
 * id=topic-0,topic-1;id=... by id.
 */
public class AssignPartitions {
    private static Optional<String> some(String text) {
        return text.isEmpty() ? Optional.empty() : Optional.of(text);
    }

    private static PartitionInfo partition(String topic, int index, String racks) {
        Node[] replicas = Arrays.stream(racks.split("\\.", -1))
            .map(rack -> new Node(1, "host", 9092, some(rack).orElse(null)))
            .toArray(Node[]::new);
        return new PartitionInfo(topic, index, replicas[0], replicas, replicas);
    }

    private static String decided(String line) {
        String[] words = line.split(" ", -1);
        AbstractPartitionAssignor assignor = switch (words[0]) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(words[0]);
        };
        Map<String, List<PartitionInfo>> topics = new HashMap<>();
        for (String topic : words[1].split(";")) {
            String[] fields = topic.split("=", -1);
            List<PartitionInfo> partitions = new ArrayList<>();
            for (String racks : fields[1].split(",", -1)) {
                partitions.add(partition(fields[0], partitions.size(), racks));
            }
            topics.put(fields[0], partitions);
        }
        Map<String, Subscription> members = new HashMap<>();
        for (String member : words[2].split(";")) {
            String[] fields = member.split(":", -1);
            List<TopicPartition> owned = Arrays.stream(fields[4].split(","))
                .filter(text -> !text.isEmpty())
                .map(text -> text.split("/"))
                .map(pair -> new TopicPartition(pair[0], Integer.parseInt(pair[1])))
                .toList();
            Subscription subscription = new Subscription(
                Arrays.asList(fields[3].split(",")), null, owned, owned.isEmpty() ? -1 : 1,
                some(fields[2]));
            subscription.setGroupInstanceId(some(fields[1]));
            members.put(fields[0], subscription);
        }
        return new TreeMap<>(assignor.assignPartitions(topics, members)).entrySet().stream()
            .map(entry -> entry.getKey() + "=" + entry.getValue().stream()
                .map(TopicPartition::toString).collect(Collectors.joining(",")))
            .collect(Collectors.joining(";"));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(decided(line));
        }
    }
}
