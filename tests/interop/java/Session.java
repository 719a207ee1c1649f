import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many of Kafka's command-line tools in one JVM, because each start of a JVM costs a second.
 *
 * Reads one JSON object per line, {"main": class, "args": [...], "stdin": text}, calls the class's
 * main method with the standard streams caught, and answers {"code": n, "out": text, "err": text}.
 * A tool that asks to end the JVM only ends its own call.
 */
public final class Session {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Thrown in place of ending the JVM. */
    private static final class Ended extends RuntimeException {
        Ended(int code) {
            super("exit " + code, null, false, false);
        }
    }

    private static Integer exitCode; // of the call under way; the first one counts
    private static final List<Runnable> shutdownHooks = new ArrayList<>();

    private static synchronized void end(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Ended(code);
    }

    private static synchronized void addHook(Runnable hook) {
        shutdownHooks.add(hook);
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> addHook(hook));
        PrintStream answers = System.out;
        System.setOut(System.err); // for threads that a tool left behind
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            ObjectNode answer = run(JSON.readTree(line));
            answers.write(JSON.writeValueAsBytes(answer));
            answers.write('\n');
            answers.flush();
        }
    }

    private static ObjectNode run(JsonNode request) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream oldOut = System.out;
        PrintStream oldErr = System.err;
        InputStream oldIn = System.in;
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new java.io.ByteArrayInputStream(
            request.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
        exitCode = null;
        shutdownHooks.clear();
        int code;
        try {
            code = call(request.get("main").asText(), texts(request.get("args")));
            shutdownHooks.forEach(Runnable::run); // the console producer sends its last batch there
        } finally {
            System.out.flush();
            System.setOut(oldOut);
            System.setErr(oldErr);
            System.setIn(oldIn);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("code", code);
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static int call(String mainClass, String[] arguments) {
        try {
            Class.forName(mainClass).getMethod("main", String[].class)
                .invoke(null, (Object) arguments);
            return exitCode == null ? 0 : exitCode;
        } catch (InvocationTargetException thrown) {
            if (exitCode != null) {
                return exitCode; // some tools catch what we throw and end a second time
            }
            thrown.getCause().printStackTrace();
            return 70;
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            return 71;
        }
    }

    private static String[] texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(element -> texts.add(element.asText()));
        return texts.toArray(new String[0]);
    }
}
