import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.*;

/**
 * Made the hexadecimal part of apache_samples.txt: reads lines "name version json" and writes lines
 * "name version hex" as Apache Kafka's own classes encode them. Not part of any test run.
 *
 * <p>java -cp 'folder-of-kafka-4.3.1-jars/*' ApacheSamples.java < lines
 */
public class ApacheSamples {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.", "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.", "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.", "org.apache.kafka.raft.generated.",
        "org.apache.kafka.storage.internals.log.generated.", "org.apache.kafka.storage.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated."};

    static Class<?> find(String name) {
        for (String p : PACKAGES)
            for (String suffix : new String[] {"Data", ""})
                try { return Class.forName(p + name + suffix + "JsonConverter"); } catch (ClassNotFoundException e) { }
        return null;
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split(" ", 3);
            short version = Short.parseShort(parts[1]);
            Class<?> converter = find(parts[0]);
            if (converter == null) { out.println(parts[0] + " " + version + " no class"); continue; }
            try {
                Method read = converter.getMethod("read", JsonNode.class, short.class);
                Message message = (Message) read.invoke(null, mapper.readTree(parts[2]), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(buffer), cache, version);
                out.println(parts[0] + " " + version + " " + HexFormat.of().formatHex(buffer.array()));
            } catch (InvocationTargetException e) {
                out.println(parts[0] + " " + version + " error " + e.getCause());
            }
        }
    }
}
