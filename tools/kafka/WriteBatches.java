import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Writes record batches as Kafka's producer does. A line of input is a batch: its producer's id,
 * epoch, sequence and whether it is transactional, then records, all separated by spaces; a record is
 * time:key:value:name=value,... in hex, with "-" for null. A line of output is the batch in hex.
 */
public class WriteBatches {
    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HexFormat.of().parseHex(text);
    }

    private static Header[] headers(String text) {
        if (text.isEmpty()) return new Header[0];
        String[] pairs = text.split(",");
        Header[] found = new Header[pairs.length];
        for (int i = 0; i < pairs.length; i++) {
            String[] pair = pairs[i].split("=", -1);
            String name = new String(bytes(pair[0]), StandardCharsets.UTF_8);
            found[i] = new RecordHeader(name, bytes(pair[1]));
        }
        return found;
    }

    private static String written(String line) {
        String[] words = line.split(" ");
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 16), RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE,
            TimestampType.CREATE_TIME, 0L, RecordBatch.NO_TIMESTAMP, Long.parseLong(words[0]),
            Short.parseShort(words[1]), Integer.parseInt(words[2]), Boolean.parseBoolean(words[3]),
            RecordBatch.NO_PARTITION_LEADER_EPOCH);
        for (int i = 4; i < words.length; i++) {
            String[] fields = words[i].split(":", -1);
            builder.append(
                Long.parseLong(fields[0]), bytes(fields[1]), bytes(fields[2]), headers(fields[3]));
        }
        ByteBuffer buffer = builder.build().buffer();
        byte[] batch = new byte[buffer.remaining()];
        buffer.get(batch);
        return HexFormat.of().formatHex(batch);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(written(line));
        }
    }
}
