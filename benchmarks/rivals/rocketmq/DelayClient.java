import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends timed messages to RocketMQ and receives the delivered ones; the same arguments and rows as
 * the programs in ../go (see rows.go).
 */
public final class DelayClient {
    private static final int IN_FLIGHT = 2048;
    private static final long SHUFFLE = 2_147_483_647L;
    private static final Map<String, String> GIVEN = new HashMap<>();

    public static void main(String[] words) throws Exception {
        for (int index = 1; index < words.length; index++) {
            String[] pair = words[index].split("=", 2);
            GIVEN.put(pair[0], pair[1]);
        }
        switch (words[0]) {
            case "create" -> create();
            case "send" -> send();
            case "receive" -> receive();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static long number(String name) {
        return Long.parseLong(GIVEN.get(name));
    }

    private static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("sender");
        producer.setNamesrvAddr(GIVEN.get("address"));
        producer.setSendMsgTimeout(30_000);
        producer.start();
        return producer;
    }

    /** A first plain message makes the topic; the broker may still be registering itself. */
    private static void create() throws Exception {
        DefaultMQProducer producer = producer();
        for (int attempt = 0; ; attempt++) {
            try {
                byte[] none = ByteBuffer.allocate(16).putLong(-1).putLong(0).array();
                producer.send(new Message(GIVEN.get("topic"), none));
                break;
            } catch (Exception early) {
                if (attempt == 100) {
                    throw early;
                }
                Thread.sleep(100);
            }
        }
        producer.shutdown();
        System.out.println("created");
    }

    private static void send() throws Exception {
        DefaultMQProducer producer = producer();
        long first = number("first");
        long count = number("count");
        long rate = number("rate");
        long dueFrom = number("due_from");
        long span = number("span");
        long delay = number("delay");
        int size = (int) number("size");
        String topic = GIVEN.get("topic");
        Semaphore room = new Semaphore(IN_FLIGHT);
        AtomicLong accepted = new AtomicLong();
        AtomicLong refused = new AtomicLong();
        long began = System.nanoTime();
        for (long i = 0; i < count; i++) {
            if (rate > 0) {
                long wait = began + i * 1_000_000_000L / rate - System.nanoTime();
                if (wait > 1_000_000) {
                    Thread.sleep(wait / 1_000_000);
                }
            }
            long offset = i * SHUFFLE % count * span / count;
            long due = dueFrom > 0 ? dueFrom + offset : System.currentTimeMillis() + delay + offset;
            ByteBuffer value = ByteBuffer.allocate(size).putLong(first + i).putLong(due);
            Message message = new Message(topic, value.array());
            message.setDeliverTimeMs(due);
            room.acquire();
            sendOne(producer, message, room, accepted, refused);
        }
        room.acquire(IN_FLIGHT);
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf("{\"accepted\": %d, \"refused\": %d, \"seconds\": %.6f}%n",
            accepted.get(), refused.get(), seconds);
        System.exit(0); // its shutdown waits for seconds
    }

    /** A broker under load answers "busy"; as its own guide says, the message is sent again. */
    private static void sendOne(DefaultMQProducer producer, Message message, Semaphore room,
            AtomicLong accepted, AtomicLong refused) throws Exception {
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    accepted.incrementAndGet();
                } else {
                    refused.incrementAndGet();
                }
                room.release();
            }

            @Override
            public void onException(Throwable trouble) {
                if (refused.incrementAndGet() <= 3) {
                    System.err.println(trouble);
                }
                try {
                    Thread.sleep(10);
                    sendOne(producer, message, room, accepted, refused);
                } catch (Exception worse) {
                    System.err.println(worse);
                    room.release();
                }
            }
        });
    }

    private static void receive() throws Exception {
        DataOutputStream rows = new DataOutputStream(
            new BufferedOutputStream(new FileOutputStream(GIVEN.get("out")), 1 << 20));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("receiver-" + number("first"));
        consumer.setNamesrvAddr(GIVEN.get("address"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(1024);
        consumer.setConsumeMessageBatchMaxSize(1024);
        consumer.subscribe(GIVEN.get("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            write(rows, messages, System.currentTimeMillis());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> flush(rows)));
        consumer.start();
        System.out.println("ready");
        while (true) {
            Thread.sleep(50);
            flush(rows);
        }
    }

    private static void write(DataOutputStream rows, List<MessageExt> messages, long received) {
        synchronized (rows) {
            try {
                for (MessageExt message : messages) {
                    rows.write(message.getBody(), 0, 16);
                    rows.writeLong(message.getStoreTimestamp());
                    rows.writeLong(received);
                }
            } catch (java.io.IOException trouble) {
                throw new java.io.UncheckedIOException(trouble);
            }
        }
    }

    private static void flush(DataOutputStream rows) {
        synchronized (rows) {
            try {
                rows.flush();
            } catch (java.io.IOException trouble) {
                throw new java.io.UncheckedIOException(trouble);
            }
        }
    }
}
