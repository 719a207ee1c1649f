import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends records for some seconds with one producer, and counts those that fail. */
public final class LongLogin {
    public static void main(String[] arguments) throws Exception {
        JsonNode job = new ObjectMapper().readTree(System.in);
        Properties settings = new Properties();
        for (Map.Entry<String, JsonNode> setting : job.get("settings").properties()) {
            settings.put(setting.getKey(), setting.getValue().asText());
        }
        settings.put("retries", "0");
        settings.put("enable.idempotence", "false");
        long until = System.currentTimeMillis() + job.get("seconds").asLong() * 1000;
        int sent = 0;
        int failed = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                settings, new StringSerializer(), new StringSerializer())) {
            while (System.currentTimeMillis() < until) {
                try {
                    producer.send(new ProducerRecord<>(job.get("topic").asText(), "x"))
                        .get(90, TimeUnit.SECONDS);
                    sent++;
                } catch (java.util.concurrent.ExecutionException failure) {
                    failed++;
                }
                Thread.sleep(20);
            }
        }
        System.out.println("{\"sent\": " + sent + ", \"failed\": " + failed + "}");
    }
}
