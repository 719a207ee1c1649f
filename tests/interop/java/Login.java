import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Logs in with the given settings and, if it gets in, writes a record and reads it. */
public final class Login {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode job = JSON.readTree(System.in);
        for (Map.Entry<String, JsonNode> property : job.get("properties").properties()) {
            System.setProperty(property.getKey(), property.getValue().asText());
        }
        Properties settings = new Properties();
        for (Map.Entry<String, JsonNode> setting : job.get("settings").properties()) {
            settings.put(setting.getKey(), setting.getValue().asText());
        }
        settings.put("default.api.timeout.ms", "60000");
        settings.put("request.timeout.ms", "30000");
        settings.put("max.block.ms", "60000");
        ObjectNode answer = JSON.createObjectNode();
        try {
            try (Admin admin = Admin.create(settings)) {
                admin.describeCluster().nodes().get(90, TimeUnit.SECONDS);
            }
            answer.put("read", roundTrip(settings, job.get("topic").asText()));
        } catch (ExecutionException failure) {
            answer.put("error", failure.getCause().getClass().getSimpleName());
        }
        System.out.println(JSON.writeValueAsString(answer));
    }

    private static String roundTrip(Properties settings, String topic) throws Exception {
        long offset;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                settings, new StringSerializer(), new StringSerializer())) {
            offset = producer.send(new ProducerRecord<>(topic, 0, null, "x".repeat(200_000)))
                .get(90, TimeUnit.SECONDS).offset();
        }
        settings.put("auto.offset.reset", "none");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            for (int tries = 0; tries < 90; tries++) {
                for (ConsumerRecord<String, String> read : consumer.poll(Duration.ofSeconds(1))) {
                    byte[] bytes = read.value().getBytes(StandardCharsets.UTF_8);
                    return bytes.length + " bytes";
                }
            }
        }
        return "nothing";
    }
}
