import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Reads lines "class version seed hex", decodes the bytes with Apache Kafka's own class of that
 * name and writes the line again with the bytes that this class makes of it. An oracle for the
 * records that no other library knows:
 *
 *   java -cp "LIBS/*" tools/RewriteRecords.java < lines > tests/golden/wire/records.txt
 */
public class RewriteRecords {
    static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.");

    static Message newMessage(String name) throws Exception {
        for (String prefix : PACKAGES) {
            try {
                return (Message) Class.forName(prefix + name).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException nextPackage) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            Message message = newMessage(words[0]);
            ByteBufferAccessor input =
                new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(words[3])));
            message.read(input, version);
            if (input.remaining() != 0) {
                throw new IllegalStateException(input.remaining() + " bytes left: " + line);
            }
            ByteBuffer output = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[output.remaining()];
            output.get(bytes);
            words[3] = HexFormat.of().formatHex(bytes);
            System.out.println(String.join(" ", words));
        }
    }
}
