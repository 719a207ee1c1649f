import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** The same queue with Java's client; a mail that fails four times is given up. */
public class Mailer {
    static final int ATTEMPTS = 4;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.length > 0 ? arguments[0] : "localhost:9092");
        settings.put("group.id", "mailers");
        settings.put("share.acknowledgement.mode", "explicit");
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> queue = new KafkaShareConsumer<>(settings, text, text)) {
            queue.subscribe(List.of("mails"));
            while (true) {
                for (ConsumerRecord<String, String> mail : queue.poll(Duration.ofSeconds(1))) {
                    queue.acknowledge(mail, result(mail));
                }
                queue.commitSync();
            }
        }
    }

    static AcknowledgeType result(ConsumerRecord<String, String> mail) {
        if (mail.value().contains("@")) {
            System.out.println("sent " + mail.value());
            return AcknowledgeType.ACCEPT;
        }
        int deliveries = mail.deliveryCount().orElse((short) 1);
        return deliveries < ATTEMPTS ? AcknowledgeType.RELEASE : AcknowledgeType.REJECT;
    }
}
