import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes numbers and reads them as a group until a file appears, then until all are read. Any error
 * that the client gives the application ends it with a stack trace.
 */
public final class Rolling {
    private static volatile Throwable failure;
    private static volatile boolean finished;

    public static void main(String[] arguments) throws Exception {
        JsonNode job = new ObjectMapper().readTree(System.in);
        Path stop = Path.of(job.get("stop").asText());
        String topic = job.get("topic").asText();
        Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        Set<String> read = ConcurrentHashMap.newKeySet();
        AtomicInteger twice = new AtomicInteger();
        Thread consuming = new Thread(() -> consume(job, topic, acknowledged, read, twice));
        consuming.start();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", job.get("bootstrap").asText());
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; !Files.exists(stop) && failure == null; number++) {
                String value = String.valueOf(number);
                producer.send(new ProducerRecord<>(topic, value, value), (done, error) -> {
                    if (error == null) {
                        acknowledged.add(value);
                    } else {
                        failure = error;
                    }
                });
                Thread.sleep(2);
            }
        }
        finished = true;
        consuming.join();
        if (failure != null) {
            throw new Exception(failure);
        }
        System.out.println(new ObjectMapper().writeValueAsString(
            Map.of("acknowledged", acknowledged.size(), "read", read.size(), "twice", twice.get())));
    }

    private static void consume(
            JsonNode job, String topic, Set<String> acknowledged, Set<String> read,
            AtomicInteger twice) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", job.get("bootstrap").asText());
        settings.put("group.id", "rolling-java");
        settings.put("group.protocol", job.get("protocol").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (failure == null && !(finished && read.containsAll(acknowledged))) {
                boolean any = false;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    any = true;
                    if (!read.add(record.value())) {
                        twice.incrementAndGet();
                    }
                }
                if (any) {
                    consumer.commitSync();
                }
            }
        } catch (Throwable error) {
            failure = error;
        }
    }
}
