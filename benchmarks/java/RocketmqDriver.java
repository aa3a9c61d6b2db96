import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The work of `./kourou bench --peers`, done with RocketMQ's own Java client.
 *
 * <p>Takes key=value arguments and prints one JSON line, both as every driver does; see
 * benchmarks/README.md. The client's settings are its defaults. Any send that is not SEND_OK ends
 * the run with an error: a figure for lost messages is worth nothing.
 */
public final class RocketmqDriver {
    private static final int BODIES = 64;
    private static final int LOAD_BATCH = 256;
    private static final int LOAD_THREADS = 8;
    private static final int WARM_SHARE = 10;
    private static final long STUCK_AFTER_S = 60;

    private final Map<String, String> options = new HashMap<>();
    private final byte[][] bodies = new byte[BODIES][];
    private final DefaultMQProducer producer;

    private RocketmqDriver(String[] arguments) {
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            options.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        Random random = new Random();
        for (int number = 0; number < BODIES; number++) {
            bodies[number] = new byte[number("size")];
            random.nextBytes(bodies[number]);
        }
        producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(options.get("address"));
        producer.setSendMsgTimeout(30_000);
    }

    public static void main(String[] arguments) throws Exception {
        RocketmqDriver driver = new RocketmqDriver(arguments);
        driver.producer.start();
        String line = driver.run();
        System.out.println(line);
        System.out.flush();
        // the figure is out: neither shutdown hooks nor the client's threads have more to say
        Runtime.getRuntime().halt(0);
    }

    private String run() throws Exception {
        switch (options.get("work")) {
            case "first-send":
                return firstSend();
            case "send":
                return send();
            case "consume":
                return consume();
            case "latency":
                return latency();
            default:
                throw new IllegalArgumentException("work=" + options.get("work"));
        }
    }

    private int number(String name) {
        return Integer.parseInt(options.get(name));
    }

    private double seconds(String name) {
        return Double.parseDouble(options.get(name));
    }

    // -- the first acknowledged send --------------------------------------------------------------
    private String firstSend() {
        while (true) {
            try {
                acknowledged(producer.send(new Message("bench-first", bodies[0]), 1_000));
                // System.nanoTime is CLOCK_MONOTONIC on Linux, which whoever started us reads, too
                return json("first-send", "\"acked_at_ns\": " + System.nanoTime(), 1, 1, null);
            } catch (Exception notYet) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(5));
            }
        }
    }

    // -- sending ----------------------------------------------------------------------------------
    private String send() throws Exception {
        String topic = createTopic("bench-send");
        Flood warm = flood(topic, number("in_flight"), number("batch"), seconds("warm_seconds"), -1);
        Flood flood = flood(topic, number("in_flight"), number("batch"), seconds("seconds"), -1);
        String values = String.format(Locale.ROOT, "\"rate\": %.3f, %s",
            flood.messages / flood.tookSeconds, quantiles(flood.tookNanos));
        return json("send", values, warm.messages + flood.messages, stored(topic), null);
    }

    private static final class Flood {
        long messages;
        double tookSeconds;
        long[] tookNanos;
    }

    /** So many threads send, each one message or one batch after the other, for a time or a count. */
    private Flood flood(String topic, int threads, int batch, double forSeconds, long messages)
        throws Exception {
        AtomicLong next = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        LongList[] took = new LongList[threads];
        Thread[] running = new Thread[threads];
        long began = System.nanoTime();
        long until = began + (long) (forSeconds * 1e9);
        for (int thread = 0; thread < threads; thread++) {
            LongList own = took[thread] = new LongList();
            running[thread] = new Thread(() -> {
                try {
                    while (failure.get() == null) {
                        if (messages < 0 && System.nanoTime() >= until) {
                            return;
                        }
                        long first = next.getAndAdd(batch);
                        if (messages >= 0 && first >= messages) {
                            next.getAndAdd(-batch);
                            return;
                        }
                        long sent = System.nanoTime();
                        acknowledged(sendOnce(topic, first, batch));
                        own.add(System.nanoTime() - sent);
                    }
                } catch (Throwable error) {
                    failure.compareAndSet(null, error);
                }
            });
            running[thread].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new IllegalStateException("a send failed", failure.get());
        }
        Flood flood = new Flood();
        flood.messages = next.get();
        flood.tookSeconds = (System.nanoTime() - began) / 1e9;
        flood.tookNanos = LongList.sorted(took);
        return flood;
    }

    private SendResult sendOnce(String topic, long first, int batch) throws Exception {
        if (batch == 1) {
            return producer.send(new Message(topic, bodies[(int) (first % BODIES)]));
        }
        List<Message> messages = new ArrayList<>(batch);
        for (int place = 0; place < batch; place++) {
            messages.add(new Message(topic, bodies[(int) ((first + place) % BODIES)]));
        }
        return producer.send(messages);
    }

    private static void acknowledged(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("sent, but " + result.getSendStatus());
        }
    }

    // -- consuming a backlog ----------------------------------------------------------------------
    private String consume() throws Exception {
        int messages = number("messages") / LOAD_BATCH * LOAD_BATCH;
        int few = Math.max(LOAD_BATCH, messages / WARM_SHARE / LOAD_BATCH * LOAD_BATCH);
        drain(load("bench-warm", few), few);
        String topic = load("bench-consume", messages);
        Drain drain = drain(topic, messages);
        String values = String.format(Locale.ROOT, "\"rate\": %.3f", messages / drain.seconds());
        return json("consume", values, messages, stored(topic), drain.handed.get());
    }

    private String load(String topic, int messages) throws Exception {
        createTopic(topic);
        flood(topic, LOAD_THREADS, LOAD_BATCH, 0, messages);
        return topic;
    }

    private static final class Drain {
        final AtomicLong handed = new AtomicLong();
        final AtomicLong bytes = new AtomicLong();
        final AtomicLong firstNanos = new AtomicLong();
        final AtomicLong lastNanos = new AtomicLong();
        final CountDownLatch done = new CountDownLatch(1);

        double seconds() {
            return (lastNanos.get() - firstNanos.get()) / 1e9;
        }

        void take(List<MessageExt> messages, long goal) {
            if (firstNanos.get() == 0) {
                firstNanos.compareAndSet(0, System.nanoTime());
            }
            long sum = 0;
            for (MessageExt message : messages) {
                sum += message.getBody().length;
            }
            bytes.addAndGet(sum);
            if (handed.addAndGet(messages.size()) >= goal) {
                lastNanos.compareAndSet(0, System.nanoTime());
                done.countDown();
            }
        }
    }

    private Drain drain(String topic, long goal) throws Exception {
        Drain drain = new Drain();
        boolean batch = options.get("handler").equals("batch");
        DefaultMQPushConsumer consumer = consumer(topic + "-group", topic,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (messages, context) -> {
                drain.take(messages, goal);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        consumer.setConsumeMessageBatchMaxSize(batch ? consumer.getPullBatchSize() : 1);
        consumer.start();
        long seen = -1;
        while (!drain.done.await(STUCK_AFTER_S, TimeUnit.SECONDS)) {
            if (seen == drain.handed.get()) {
                throw new IllegalStateException("only " + seen + " of " + goal + " came");
            }
            seen = drain.handed.get();
        }
        if (drain.bytes.get() < goal * number("size")) {
            throw new IllegalStateException("bodies are too short: " + drain.bytes.get());
        }
        consumer.shutdown();
        return drain;
    }

    private DefaultMQPushConsumer consumer(String group, String topic, ConsumeFromWhere where,
        MessageListenerConcurrently listener) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(options.get("address"));
        consumer.setConsumeFromWhere(where);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        return consumer;
    }

    // -- end to end -------------------------------------------------------------------------------
    private String latency() throws Exception {
        String topic = createTopic("bench-latency");
        LinkedBlockingQueue<Long> arrived = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = consumer("bench-latency-group", topic,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, (messages, context) -> {
                for (MessageExt message : messages) {
                    String number = new String(message.getBody(), 0, 16, StandardCharsets.US_ASCII);
                    arrived.add(Long.parseLong(number, 16));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        consumer.start();
        long number = 0;
        int inARow = 0;
        while (inARow < 4 * number("queues")) { // a group begins at the end of queues it does not have
            inARow = once(topic, number++, arrived, 1_000) < 0 ? 0 : inARow + 1;
        }
        long until = System.nanoTime() + (long) (seconds("warm_seconds") * 1e9);
        while (System.nanoTime() < until) {
            must(once(topic, number++, arrived, 30_000));
        }
        LongList took = new LongList();
        until = System.nanoTime() + (long) (seconds("seconds") * 1e9);
        while (System.nanoTime() < until) {
            took.add(must(once(topic, number++, arrived, 30_000)));
        }
        return json("latency", quantiles(LongList.sorted(took)), number, stored(topic), null);
    }

    private long once(String topic, long number, LinkedBlockingQueue<Long> arrived, long patience)
        throws Exception {
        byte[] body = bodies[0].clone();
        byte[] stamp = String.format("%016x", number).getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(stamp, 0, body, 0, stamp.length);
        long began = System.nanoTime();
        acknowledged(producer.send(new Message(topic, body)));
        while (true) {
            Long came = arrived.poll(patience, TimeUnit.MILLISECONDS);
            if (came == null) {
                return -1;
            }
            if (came == number) {
                return System.nanoTime() - began;
            }
        }
    }

    private static long must(long took) {
        if (took < 0) {
            throw new IllegalStateException("a message did not arrive");
        }
        return took;
    }

    // -- topics and counts ------------------------------------------------------------------------
    private String createTopic(String topic) throws Exception {
        int queues = number("queues");
        for (int attempt = 0; ; attempt++) {
            try {
                producer.createTopic("TBW102", topic, queues);
                if (producer.fetchPublishMessageQueues(topic).size() == queues) {
                    return topic;
                }
            } catch (MQClientException notYet) {
                if (attempt > 500) {
                    throw notYet;
                }
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
        }
    }

    private long stored(String topic) throws MQClientException {
        long sum = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            sum += producer.maxOffset(queue) - producer.minOffset(queue);
        }
        return sum;
    }

    // -- one JSON line ----------------------------------------------------------------------------
    private static String json(String work, String values, long sent, long stored, Long handed) {
        return "{\"work\": \"" + work + "\", \"values\": {" + values + "}, \"sent\": " + sent
            + ", \"stored\": " + stored + ", \"handed\": " + handed + "}";
    }

    private static String quantiles(long[] ordered) {
        return String.format(Locale.ROOT, "\"p50_ms\": %.6f, \"p99_ms\": %.6f",
            ordered[place(ordered, 0.5)] / 1e6, ordered[place(ordered, 0.99)] / 1e6);
    }

    private static int place(long[] ordered, double share) {
        return Math.min(ordered.length - 1, (int) (share * ordered.length));
    }

    private static final class LongList {
        private long[] items = new long[1024];
        private int count;

        void add(long item) {
            if (count == items.length) {
                items = Arrays.copyOf(items, count * 2);
            }
            items[count++] = item;
        }

        static long[] sorted(LongList... lists) {
            int count = 0;
            for (LongList list : lists) {
                count += list.count;
            }
            long[] all = new long[count];
            int at = 0;
            for (LongList list : lists) {
                System.arraycopy(list.items, 0, all, at, list.count);
                at += list.count;
            }
            Arrays.sort(all);
            return all;
        }
    }
}
