import java.util.Base64;
import java.util.Scanner;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers each line with Java's and Kafka's own classes. Words are texts in Base64.
 *
 *   name DER            the distinguished name as X500Principal.getName
 *   map RULES NAME      the principal of Kafka's ssl.principal.mapping.rules, or an exclamation mark if there is none
 */
public class PrincipalOracle {
    static byte[] bytes(String word) { return Base64.getDecoder().decode(word); }

    static String text(String word) throws Exception { return new String(bytes(word), "UTF-8"); }

    public static void main(String[] args) throws Exception {
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String[] words = input.nextLine().split(" ");
            String answer;
            try {
                if (words[0].equals("name"))
                    answer = new X500Principal(bytes(words[1])).getName();
                else
                    answer = SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
                answer = Base64.getEncoder().encodeToString(answer.getBytes("UTF-8"));
            } catch (Exception error) {
                answer = "!";
            }
            System.out.println(answer);
        }
    }
}
