import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/**
 * Runs main() of Kafka's tools, many in one JVM. A line on stdin is one run: fields in base64,
 * separated by blanks: class, its standard input, its arguments. The answer is one line: exit code
 * and output in base64. Every run gets its own class loader, because the tools keep state in
 * statics. Their exit() ends the run only (the first code counts: some catch what exit throws),
 * and their shutdown hooks run when main() is done.
 */
public class ToolRunner {
    static final long RUN_MS_MAX = 90_000;
    static final int DID_NOT_END = -1;

    static class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            List<String> fields = new ArrayList<>();
            for (String field : line.split(" ", -1)) {
                fields.add(new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8));
            }
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            int code = run(fields, new PrintStream(said, true));
            answers.println(code + " " + Base64.getEncoder().encodeToString(said.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static int run(List<String> fields, PrintStream out) throws Exception {
        System.setIn(new ByteArrayInputStream(fields.get(1).getBytes(StandardCharsets.UTF_8)));
        System.setOut(out);
        System.setErr(out);
        String[] arguments = fields.subList(2, fields.size()).toArray(new String[0]);
        int[] code = {DID_NOT_END};
        Thread tool = new Thread(() -> code[0] = call(fields.get(0), arguments, out));
        tool.setDaemon(true);
        tool.start();
        tool.join(RUN_MS_MAX);
        if (tool.isAlive()) {
            out.println("did not end; it waits at");
            for (StackTraceElement frame : tool.getStackTrace()) {
                out.println("  " + frame);
            }
            tool.interrupt();
        }
        return code[0];
    }

    static int call(String tool, String[] arguments, PrintStream out) {
        List<Integer> codes = new ArrayList<>();
        List<Runnable> hooks = new ArrayList<>();
        try {
            List<URL> jars = new ArrayList<>();
            for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
                jars.add(new File(entry).toURI().toURL());
            }
            URLClassLoader loader =
                new URLClassLoader(jars.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
            Thread.currentThread().setContextClassLoader(loader);
            makeExitHarmless(loader, codes, hooks);
            loader.loadClass(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failed) {
            if (codes.isEmpty()) {
                codes.add(1);
                failed.getCause().printStackTrace(out);
            }
        } catch (Throwable failed) {
            codes.add(1);
            failed.printStackTrace(out);
        }
        hooks.forEach(Runnable::run);
        return codes.isEmpty() ? 0 : codes.get(0);
    }

    static void makeExitHarmless(ClassLoader loader, List<Integer> codes, List<Runnable> hooks)
            throws Exception {
        Class<?> exit = loader.loadClass("org.apache.kafka.common.utils.Exit");
        Class<?> procedure = loader.loadClass("org.apache.kafka.common.utils.Exit$Procedure");
        Class<?> adder = loader.loadClass("org.apache.kafka.common.utils.Exit$ShutdownHookAdder");
        Object end = Proxy.newProxyInstance(loader, new Class<?>[] {procedure}, (self, method, values) -> {
            codes.add((Integer) values[0]);
            throw new Exited();
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, end);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, end);
        Object keep = Proxy.newProxyInstance(loader, new Class<?>[] {adder}, (self, method, values) -> {
            hooks.add((Runnable) values[1]);
            return null;
        });
        exit.getMethod("setShutdownHookAdder", adder).invoke(null, keep);
    }
}
