import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Decides with Kafka's StandardAuthorizer. A line of input has four fields separated by "|":
 * allow.everyone.if.no.acl.found, super.users, ACLs and questions; the last two are lists separated
 * by spaces. An ACL is type,name,pattern,principal,host,operation,permission with Kafka's numbers. A
 * question is authorize,principal,host,operation,type,name or any,principal,host,operation,type or
 * filter with the fields of an ACL, where a name, principal or host may be empty for any. A line of
 * output has a number for each question: 1 or 0 for allowed or denied, or how many ACLs match.
 */
public class Authorize {
    private record Context(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {
        static Context of(String principal, String host) throws Exception {
            return new Context(
                SecurityUtils.parseKafkaPrincipal(principal), InetAddress.getByName(host));
        }

        public String listenerName() {
            return "PLAINTEXT";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public int requestType() {
            return 3;
        }

        public int requestVersion() {
            return 0;
        }

        public String clientId() {
            return "test";
        }

        public int correlationId() {
            return 0;
        }
    }

    private static AclOperation operation(String code) {
        return AclOperation.fromCode(Byte.parseByte(code));
    }

    private static ResourceType type(String code) {
        return ResourceType.fromCode(Byte.parseByte(code));
    }

    private static PatternType pattern(String code) {
        return PatternType.fromCode(Byte.parseByte(code));
    }

    private static AclPermissionType permission(String code) {
        return AclPermissionType.fromCode(Byte.parseByte(code));
    }

    private static String some(String text) {
        return text.isEmpty() ? null : text;
    }

    private static String answer(StandardAuthorizer authorizer, String[] words) throws Exception {
        AuthorizationResult result;
        switch (words[0]) {
            case "authorize":
                ResourcePattern resource =
                    new ResourcePattern(type(words[4]), words[5], PatternType.LITERAL);
                Action action = new Action(operation(words[3]), resource, 1, true, true);
                result = authorizer.authorize(Context.of(words[1], words[2]), List.of(action)).get(0);
                break;
            case "any":
                result = authorizer.authorizeByResourceType(
                    Context.of(words[1], words[2]), operation(words[3]), type(words[4]));
                break;
            default:
                AclBindingFilter filter = new AclBindingFilter(
                    new ResourcePatternFilter(type(words[1]), some(words[2]), pattern(words[3])),
                    new AccessControlEntryFilter(
                        some(words[4]), some(words[5]), operation(words[6]), permission(words[7])));
                int count = 0;
                for (Object ignored : authorizer.acls(filter)) {
                    count++;
                }
                return Integer.toString(count);
        }
        return result == AuthorizationResult.ALLOWED ? "1" : "0";
    }

    private static String decided(StandardAuthorizer authorizer, String line) throws Exception {
        String[] fields = line.split("\\|", -1);
        authorizer.configure(Map.of(
            "allow.everyone.if.no.acl.found", fields[0], "super.users", fields[1], "node.id", "1"));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        for (String text : fields[2].split(" ")) {
            if (!text.isEmpty()) {
                String[] words = text.split(",", -1);
                acls.put(new Uuid(1, acls.size()), new StandardAcl(
                    type(words[0]), words[1], pattern(words[2]), words[3], words[4],
                    operation(words[5]), permission(words[6])));
            }
        }
        authorizer.loadSnapshot(acls);
        List<String> answers = new ArrayList<>();
        for (String text : fields[3].split(" ")) {
            answers.add(answer(authorizer, text.split(",", -1)));
        }
        return String.join(" ", answers);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintWriter out = new PrintWriter(System.out);
        StandardAuthorizer authorizer = new StandardAuthorizer();
        Plugin.wrapInstance(authorizer, new Metrics(), "authorizer.class.name");
        authorizer.completeInitialLoad();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(decided(authorizer, line));
        }
        out.flush();
    }
}
