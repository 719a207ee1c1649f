import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;

/**
 * A share consumer that acknowledges by the number in each record: 3 modulo 10 is released once, 5
 * is rejected, 7 is renewed once, everything else is accepted. Prints a line for each delivery, and
 * ends when so many records are accepted or rejected. Arguments: bootstrap, topic, group, count.
 */
public class Shares {
    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[2]);
        properties.put("share.acknowledgement.mode", "explicit");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        int left = Integer.parseInt(args[3]);
        Set<String> renewed = new HashSet<>();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(args[1]));
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    AcknowledgeType type = type(record, renewed);
                    consumer.acknowledge(record, type);
                    int deliveries = record.deliveryCount().get();
                    System.out.println(type.name() + " " + record.value() + " " + deliveries);
                    if (type == AcknowledgeType.ACCEPT || type == AcknowledgeType.REJECT) {
                        left--;
                    }
                }
                for (var outcome : consumer.commitSync().entrySet()) {
                    if (outcome.getValue().isPresent()) {
                        KafkaException problem = outcome.getValue().get();
                        System.out.println("PROBLEM " + problem.getClass().getSimpleName());
                    }
                }
            }
        }
    }

    private static AcknowledgeType type(ConsumerRecord<String, String> record, Set<String> renewed) {
        int number = Integer.parseInt(record.value()) % 10;
        if (number == 3 && record.deliveryCount().get() == 1) {
            return AcknowledgeType.RELEASE;
        }
        if (number == 5) {
            return AcknowledgeType.REJECT;
        }
        if (number == 7 && renewed.add(record.value())) {
            return AcknowledgeType.RENEW;
        }
        return AcknowledgeType.ACCEPT;
    }
}
