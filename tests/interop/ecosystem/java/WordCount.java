import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words until the output holds `wanted` records, then prints each word with every count seen, in order.
 *
 * Arguments: bootstrap, input topic, output topic, application id, guarantee, state folder, wanted, crash word, and
 * the protocol of the group: classic or streams.
 * The thread that meets the crash word for the first time fails and is replaced: what it had written in the
 * open transaction must be neither lost nor seen twice. Caches are off, so that each word has one output record.
 */
public final class WordCount {
    public static void main(String[] given) throws Exception {
        String output = given[2];
        int wanted = Integer.parseInt(given[6]);
        try (KafkaStreams streams = streams(given)) {
            streams.cleanUp(); // the state comes back from its changelog topic
            streams.start();
            seen(given[0], output, wanted).forEach((word, counts) -> System.out.println(word + " " + counts));
            // Else the second run would wait for the first one's sessions to end.
            CloseOptions leaving = CloseOptions.timeout(Duration.ofSeconds(100))
                .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
            if (!streams.close(leaving)) {
                throw new IllegalStateException("Kafka Streams did not close");
            }
        }
    }

    static KafkaStreams streams(String[] given) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, given[3]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, given[4]);
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, given[8]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(given[5]).toString());
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        // The session of a thread that fails is waited for; without such a thread none may end by chance, since
        // only exactly-once repeats nothing then.
        int session = given[4].startsWith("exactly") ? 6_000 : 30_000;
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), session);
        KafkaStreams streams = new KafkaStreams(topology(given[1], given[2], given[7]).build(), settings);
        streams.setUncaughtExceptionHandler(thrown -> StreamThreadExceptionResponse.REPLACE_THREAD);
        return streams;
    }

    private static StreamsBuilder topology(String input, String output, String crashWord) {
        AtomicBoolean crashed = new AtomicBoolean();
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(input);
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .peek((word, count) -> {
                if (word.equals(crashWord) && crashed.compareAndSet(false, true)) {
                    throw new IllegalStateException("a crash on purpose at " + word);
                }
            })
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder;
    }

    private static Map<String, List<Long>> seen(String bootstrap, String topic, int wanted) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        Map<String, List<Long>> counts = new TreeMap<>();
        try (KafkaConsumer<String, Long> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.nanoTime() + Duration.ofSeconds(200).toNanos();
            long quiet = 0; // a little longer than needed, to see what comes in excess
            for (int read = 0; quiet < 2; ) {
                for (ConsumerRecord<String, Long> one : consumer.poll(Duration.ofMillis(400))) {
                    counts.computeIfAbsent(one.key(), key -> new java.util.ArrayList<>()).add(one.value());
                    read++;
                }
                quiet = read >= wanted ? quiet + 1 : 0;
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + read + " of " + wanted + ": " + counts);
                }
            }
        }
        return counts;
    }
}
