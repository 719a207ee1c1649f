import java.util.concurrent.CountDownLatch;
import org.apache.kafka.streams.KafkaStreams;

/** One instance of the application of WordCount, which counts until its process ends. Arguments: those of WordCount. */
public final class WordCountInstance {
    public static void main(String[] given) throws Exception {
        KafkaStreams streams = WordCount.streams(given);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.start();
        new CountDownLatch(1).await();
    }
}
