import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Members of one group share two topics: two of them, then a third joins, then the first leaves.
 *
 * Arguments: bootstrap, first topic, second topic (three partitions each), group, protocol, assignor, and the shares
 * that each of the three stages must come to, such as 3,3 2,2,2 3,3. In each stage records are written to every
 * partition and read to the end. Prints for each stage what every member owns, has kept since the stage before and
 * gave up in it, and at last how many records were read and how many of them twice. A partition that two members
 * own at one moment ends the program. All members live in one thread, so nothing happens between two callbacks.
 */
public final class Sharing {
    private static final int PARTITIONS = 3;
    private static final int RECORDS = 20;

    private final String[] given;
    private final List<Member> members = new ArrayList<>();
    private final Map<String, Integer> read = new HashMap<>();
    private int sent;

    private Sharing(String[] given) {
        this.given = given;
    }

    public static void main(String[] given) {
        Sharing sharing = new Sharing(given);
        try {
            sharing.run();
        } finally {
            sharing.members.forEach(member -> member.consumer.close(
                CloseOptions.timeout(Duration.ofSeconds(5))));
        }
    }

    private void run() {
        members.add(new Member("first"));
        members.add(new Member("second"));
        stage(1, given[6]);
        members.add(new Member("third"));
        stage(2, given[7]);
        Member first = members.remove(0);
        first.consumer.close();
        first.owned.clear();
        stage(3, given[8]);
        long twice = read.values().stream().filter(times -> times > 1).count();
        System.out.println("sent " + sent + " read " + read.size() + " twice " + twice);
    }

    private void stage(int number, String shares) {
        List<Integer> wanted = numbers(shares);
        write(number);
        members.forEach(Member::begin);
        long deadline = System.nanoTime() + Duration.ofSeconds(150).toNanos();
        while (read.size() < sent || !shares().equals(wanted) || !members.stream().allMatch(Member::isAtRest)) {
            members.forEach(Member::poll);
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("stage " + number + ": read " + read.size() + " of " + sent
                    + ", shares " + shares() + " and not " + wanted);
            }
        }
        for (Member member : members) {
            System.out.println("stage " + number + " " + member.name + " owns " + names(member.owned)
                + " kept " + names(member.kept()) + " gave up " + names(member.gaveUp));
        }
    }

    private List<Integer> shares() {
        return members.stream().map(member -> member.owned.size()).sorted((a, b) -> b - a).collect(Collectors.toList());
    }

    private static List<Integer> numbers(String text) {
        return List.of(text.split(",")).stream().map(Integer::valueOf).collect(Collectors.toList());
    }

    private void write(int stage) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String topic : List.of(given[1], given[2])) {
                for (int n = 0; n < PARTITIONS * RECORDS; n++) {
                    String value = topic + " " + stage + " " + n;
                    producer.send(new ProducerRecord<>(topic, n % PARTITIONS, null, value));
                    sent++;
                }
            }
        }
    }

    private String names(Collection<TopicPartition> places) {
        return places.stream()
            .map(place -> (place.topic().equals(given[1]) ? "a" : "b") + place.partition())
            .sorted().collect(Collectors.joining(",", "[", "]"));
    }

    private final class Member implements ConsumerRebalanceListener {
        final String name;
        final KafkaConsumer<String, String> consumer;
        final Set<TopicPartition> owned = new HashSet<>();
        final Set<TopicPartition> gaveUp = new HashSet<>();
        Set<TopicPartition> before = Set.of();
        boolean uncommitted;

        Member(String name) {
            this.name = name;
            Properties settings = new Properties();
            settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
            settings.put(ConsumerConfig.GROUP_ID_CONFIG, given[3]);
            settings.put(ConsumerConfig.CLIENT_ID_CONFIG, name);
            settings.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, given[4]);
            settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
            settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
            if (given[4].equals("classic")) {
                settings.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, given[5]);
                settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, "200");
            } else {
                settings.put(ConsumerConfig.GROUP_REMOTE_ASSIGNOR_CONFIG, given[5]);
            }
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(given[1], given[2]), this);
        }

        void begin() {
            before = Set.copyOf(owned);
            gaveUp.clear();
        }

        Set<TopicPartition> kept() {
            return before.stream().filter(owned::contains).collect(Collectors.toSet());
        }

        void poll() {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(30))) {
                read.merge(record.value(), 1, Integer::sum);
                uncommitted = true;
            }
            commit();
        }

        /** What was read; not while the group is between two generations: then with the next poll. */
        void commit() {
            try {
                if (uncommitted) {
                    consumer.commitSync();
                    uncommitted = false;
                }
            } catch (RebalanceInProgressException notNow) {
                uncommitted = true;
            }
        }

        /** Whether the member is in no rebalance: a member that is closed in one calls its partitions lost. */
        boolean isAtRest() {
            uncommitted = true;
            commit();
            return !uncommitted;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            commit();
            owned.removeAll(places);
            gaveUp.addAll(places);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            throw new IllegalStateException(name + " lost " + places);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            for (Member other : members) {
                for (TopicPartition place : places) {
                    if (other != this && other.owned.contains(place)) {
                        throw new IllegalStateException(place + " is owned by " + other.name + " and " + name);
                    }
                }
            }
            owned.addAll(places);
        }
    }
}
