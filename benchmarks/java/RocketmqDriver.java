import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The work of `./kourou bench --peers`, done with RocketMQ's own Java client.
 *
 * <p>Takes key=value arguments and prints one JSON line, both as every driver does; see
 * benchmarks/README.md. The client's settings are its defaults. Any send that is not SEND_OK ends
 * the run with an error: a figure for lost messages is worth nothing.
 */
public final class RocketmqDriver {
    static final int LOAD_BATCH = 256;
    static final int WARM_SHARE = 10;
    static final long STUCK_AFTER_S = 60;

    private static final int BODIES = 64;
    private static final int LOAD_THREADS = 8;
    /** Behind more than a server stores in 3 s the client's heartbeat is late, and it hangs up. */
    private static final int ONEWAY_RUN = 1_000;
    private static final long SETTLED_AFTER_S = 30;

    final DefaultMQProducer producer;
    /** Counts over connections of its own: behind a flood of sends one way a question times out. */
    private final DefaultMQProducer watcher;

    private final Map<String, String> options = new HashMap<>();
    private final byte[][] bodies = new byte[BODIES][];

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
        producer = producer("bench-producer");
        watcher = producer("bench-watcher");
    }

    private DefaultMQProducer producer(String name) {
        DefaultMQProducer made = new DefaultMQProducer(name);
        made.setInstanceName(name);
        made.setNamesrvAddr(text("address"));
        made.setSendMsgTimeout(30_000);
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        RocketmqDriver driver = new RocketmqDriver(arguments);
        driver.producer.start();
        driver.watcher.start();
        int code = 0;
        try {
            System.out.println(driver.run());
        } catch (Throwable error) {
            // who waits for the figure must hear of it, whatever the client's threads still do
            error.printStackTrace();
            code = 1;
        }
        System.out.flush();
        // all is said: neither shutdown hooks nor the client's threads have more to say
        Runtime.getRuntime().halt(code);
    }

    private String run() throws Exception {
        switch (text("work")) {
            case "first-send":
                return firstSend();
            case "send":
                return send();
            case "send-async":
                return sendAsync();
            case "oneway":
                return sendOneway();
            case "transactions":
                return new Transactions(this).send();
            case "delayed":
                return new Delays(this).deliver();
            case "consume":
                return new Consuming(this).consume();
            case "ordered":
                return new Consuming(this).inOrder();
            case "broadcast":
                return new Consuming(this).broadcast();
            case "filtered":
                return new Consuming(this).filtered();
            case "latency":
                return new Consuming(this).latency();
            default:
                throw new IllegalArgumentException("work=" + text("work"));
        }
    }

    String text(String name) {
        return options.get(name);
    }

    int number(String name) {
        return Integer.parseInt(options.get(name));
    }

    double seconds(String name) {
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
        int batch = number("batch");
        return flooded("send", topic, batch, first -> acknowledged(sendOnce(topic, first, batch)));
    }

    /** One thread; so many sends are under way at any time, and callbacks hear of them. */
    private String sendAsync() throws Exception {
        String topic = createTopic("bench-async");
        int inFlight = number("in_flight");
        long[] sent = new long[2];
        double[] took = new double[2];
        double[] lasts = {seconds("warm_seconds"), seconds("seconds")};
        for (int part = 0; part < 2; part++) {
            Semaphore room = new Semaphore(inFlight);
            AtomicReference<Throwable> failure = new AtomicReference<>();
            long began = System.nanoTime();
            long until = began + (long) (lasts[part] * 1e9);
            while (failure.get() == null && System.nanoTime() < until) {
                room.acquire();
                producer.send(new Message(topic, body(sent[part]++)), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        if (result.getSendStatus() != SendStatus.SEND_OK) {
                            failure.set(new IllegalStateException("sent, but " + result));
                        }
                        room.release();
                    }

                    @Override
                    public void onException(Throwable error) {
                        failure.set(error);
                        room.release();
                    }
                });
            }
            room.acquire(inFlight);
            took[part] = (System.nanoTime() - began) / 1e9;
            if (failure.get() != null) {
                throw new IllegalStateException("a send failed", failure.get());
            }
        }
        String values = String.format(Locale.ROOT, "\"rate\": %.3f", sent[1] / took[1]);
        return json("send-async", values, sent[0] + sent[1], stored(topic), null);
    }

    /** Few are answered: the watch stops when the server has stored all of it. */
    private String sendOneway() throws Exception {
        String topic = createTopic("bench-oneway");
        Sender sender = number -> {
            Message message = new Message(topic, body(number));
            if (number % ONEWAY_RUN == 0) {
                acknowledged(producer.send(message));
            } else {
                producer.sendOneway(message);
            }
        };
        Flood warm = flood(sender, number("in_flight"), 1, seconds("warm_seconds"), -1, 0);
        stored(topic, warm.messages);
        long began = System.nanoTime();
        Flood flood = flood(sender, number("in_flight"), 1, seconds("seconds"), -1, 0);
        long stored = stored(topic, warm.messages + flood.messages);
        double took = (System.nanoTime() - began) / 1e9;
        String values = String.format(Locale.ROOT, "\"rate\": %.3f", flood.messages / took);
        return json("oneway", values, warm.messages + flood.messages, stored, null);
    }

    /** Sends the message, or the batch that begins with the message, of that number. */
    interface Sender {
        void send(long first) throws Exception;
    }

    static final class Flood {
        long messages;
        double tookSeconds;
        long[] tookNanos;
    }

    /** Warm up, flood, count. */
    String flooded(String work, String topic, int batch, Sender sender) throws Exception {
        int threads = number("in_flight");
        Flood warm = flood(sender, threads, batch, seconds("warm_seconds"), -1, 0);
        Flood flood = flood(sender, threads, batch, seconds("seconds"), -1, 0);
        String values = String.format(Locale.ROOT, "\"rate\": %.3f, %s",
            flood.messages / flood.tookSeconds, quantiles(flood.tookNanos));
        long sent = warm.messages + flood.messages;
        return json(work, values, sent, stored(topic, sent), null);
    }

    /**
     * So many threads send, each one message or one batch after the other, for a time or a count,
     * and, where a pace is given, at most so many messages a second.
     */
    Flood flood(Sender sender, int threads, int batch, double forSeconds, long messages, long pace)
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
                        if (pace > 0) {
                            sleepUntil(began + first * 1_000_000_000L / pace);
                        }
                        long sent = System.nanoTime();
                        sender.send(first);
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

    private static void sleepUntil(long nanos) {
        long left;
        while ((left = nanos - System.nanoTime()) > 0) {
            LockSupport.parkNanos(left);
        }
    }

    byte[] body(long number) {
        return bodies[(int) (number % BODIES)];
    }

    /** A body of the usual length that begins with a number. */
    byte[] stamped(long stamp) {
        byte[] body = bodies[0].clone();
        byte[] digits = String.format("%016x", stamp).getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(digits, 0, body, 0, digits.length);
        return body;
    }

    static long stamp(byte[] body) {
        return Long.parseLong(new String(body, 0, 16, StandardCharsets.US_ASCII), 16);
    }

    private SendResult sendOnce(String topic, long first, int batch) throws Exception {
        if (batch == 1) {
            return producer.send(new Message(topic, body(first)));
        }
        List<Message> messages = new ArrayList<>(batch);
        for (int place = 0; place < batch; place++) {
            messages.add(new Message(topic, body(first + place)));
        }
        return producer.send(messages);
    }

    static void acknowledged(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("sent, but " + result.getSendStatus());
        }
    }

    // -- backlogs ---------------------------------------------------------------------------------
    /** How a message of a backlog looks. */
    interface Making {
        Message make(String topic, long number);
    }

    String load(String topic, int messages, Making making) throws Exception {
        createTopic(topic);
        Sender sender = first -> {
            List<Message> batch = new ArrayList<>(LOAD_BATCH);
            for (int place = 0; place < LOAD_BATCH; place++) {
                batch.add(making.make(topic, first + place));
            }
            acknowledged(producer.send(batch));
        };
        flood(sender, LOAD_THREADS, LOAD_BATCH, 0, messages, 0);
        return topic;
    }

    // -- topics and counts ------------------------------------------------------------------------
    String createTopic(String topic) throws Exception {
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

    long stored(String topic) throws MQClientException {
        long sum = 0;
        for (MessageQueue queue : watcher.fetchPublishMessageQueues(topic)) {
            sum += watcher.maxOffset(queue) - watcher.minOffset(queue);
        }
        return sum;
    }

    /** The same, when so many are there, or when it is clear that they do not come. */
    long stored(String topic, long wanted) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(SETTLED_AFTER_S);
        long found;
        while ((found = stored(topic)) < wanted && System.nanoTime() < until) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(10));
        }
        return found;
    }

    // -- one JSON line ----------------------------------------------------------------------------
    static String json(String work, String values, long sent, long stored, Long handed) {
        return json(work, values, sent, stored, handed, null);
    }

    /** With how many of them consumers should have been given, where it is not all, once. */
    static String json(String work, String values, long sent, long stored, Long handed, Long due) {
        return "{\"work\": \"" + work + "\", \"values\": {" + values + "}, \"sent\": " + sent
            + ", \"stored\": " + stored + ", \"handed\": " + handed + ", \"due\": " + due + "}";
    }

    static String quantiles(long[] ordered) {
        return String.format(Locale.ROOT, "\"p50_ms\": %.6f, \"p99_ms\": %.6f",
            ordered[place(ordered, 0.5)] / 1e6, ordered[place(ordered, 0.99)] / 1e6);
    }

    private static int place(long[] ordered, double share) {
        return Math.min(ordered.length - 1, (int) (share * ordered.length));
    }

    static final class LongList {
        private long[] items = new long[1024];
        private int count;

        int count() {
            return count;
        }

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
