import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The client program in Java; see ../clients.py for the JSON it reads and prints. */
public final class Client {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TOO_LARGE_TO_PRINT = 100_000;

    public static void main(String[] arguments) throws Exception {
        JsonNode job = JSON.readTree(System.in);
        ObjectNode answer = switch (job.get("verb").asText()) {
            case "produce" -> produce(job);
            case "consume" -> consume(job);
            case "offset_for_time" -> offsetForTime(job);
            default -> throw new IllegalArgumentException(job.get("verb").asText());
        };
        System.out.println(JSON.writeValueAsString(answer));
    }

    private static ObjectNode produce(JsonNode job) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", job.get("bootstrap").asText());
        settings.put("compression.type", job.get("compression").asText());
        settings.put("linger.ms", "50");
        settings.put("max.request.size", "104857600");
        settings.put("buffer.memory", "134217728");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ArrayNode offsets = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : job.get("records")) {
                RecordHeaders headers = new RecordHeaders();
                for (JsonNode header : record.get("headers")) {
                    headers.add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(new ProducerRecord<>(
                    job.get("topic").asText(), job.get("partition").asInt(),
                    record.get("timestamp").asLong(), bytes(record.get("key")),
                    value(record), headers)));
            }
            for (Future<RecordMetadata> one : sent) {
                offsets.add(one.get().offset());
            }
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("offsets", offsets);
        return answer;
    }

    private static ObjectNode consume(JsonNode job) throws Exception {
        TopicPartition partition =
            new TopicPartition(job.get("topic").asText(), job.get("partition").asInt());
        int wanted = job.get("count").asInt();
        ArrayNode records = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(job)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, job.get("offset").asLong());
            while (records.size() < wanted) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    records.add(printed(record));
                }
            }
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("records", records);
        return answer;
    }

    private static ObjectNode offsetForTime(JsonNode job) {
        TopicPartition partition =
            new TopicPartition(job.get("topic").asText(), job.get("partition").asInt());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(job)) {
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(partition, job.get("time").asLong())).get(partition);
            ObjectNode answer = JSON.createObjectNode();
            answer.put("offset", found == null ? -1 : found.offset());
            return answer;
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode job) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", job.get("bootstrap").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        return new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static ObjectNode printed(ConsumerRecord<byte[], byte[]> record) throws Exception {
        ObjectNode printed = JSON.createObjectNode();
        printed.put("offset", record.offset());
        printed.put("timestamp", record.timestamp());
        printed.put("key", text(record.key()));
        printed.put("value", text(record.value()));
        ArrayNode headers = printed.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return printed;
    }

    private static byte[] value(JsonNode record) {
        if (!record.has("size")) {
            return bytes(record.get("value"));
        }
        byte[] large = new byte[record.get("size").asInt()];
        Arrays.fill(large, (byte) record.get("fill").asInt());
        return large;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) throws Exception {
        if (bytes == null) {
            return null;
        }
        if (bytes.length > TOO_LARGE_TO_PRINT) {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
            return "sha256:" + HexFormat.of().formatHex(digest);
        }
        return Base64.getEncoder().encodeToString(bytes);
    }
}
