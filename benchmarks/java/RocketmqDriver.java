import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
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
 * <p>Takes key=value arguments, prepares the work, prints `ready`, and answers each line `measure
 * SECONDS` of its input with one JSON line, as every driver does; see benchmarks/README.md. The
 * client's settings are its defaults. Any send that is not SEND_OK ends the run with an error: a
 * figure for lost messages is worth nothing. Compiles with the clients of RocketMQ 4.9 and 5.3.
 */
public final class RocketmqDriver {
    static final int LOAD_BATCH = 256;
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

    /** Does the work once: for so many seconds, or, where it is counted in messages, all of them. */
    interface Work {
        String measure(double seconds) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        RocketmqDriver driver = new RocketmqDriver(arguments);
        driver.producer.start();
        driver.watcher.start();
        PrintStream out = System.out; // mqadmin's commands print to what System.out is then
        int code = 0;
        try {
            Work work = driver.prepared();
            out.println("ready");
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            for (String line; (line = commands.readLine()) != null; ) {
                if (!line.startsWith("measure ")) {
                    throw new IllegalArgumentException(line + " is not `measure SECONDS`");
                }
                out.println(work.measure(Double.parseDouble(line.substring("measure ".length()))));
            }
        } catch (Throwable error) {
            // who waits for the figure must hear of it, whatever the client's threads still do
            error.printStackTrace();
            code = 1;
        }
        out.flush();
        // all is said: neither shutdown hooks nor the client's threads have more to say
        Runtime.getRuntime().halt(code);
    }

    private Work prepared() throws Exception {
        switch (text("work")) {
            case "first-send":
                return seconds -> firstSend();
            case "send":
                return sending();
            case "send-async":
                return sendingAsync();
            case "oneway":
                return sendingOneway();
            case "transactions":
                return new Transactions(this).sending();
            case "delayed":
                return new Delays(this).delivering();
            case "consume":
                return new Consuming(this).consuming();
            case "ordered":
                return new Consuming(this).inOrder();
            case "broadcast":
                return new Consuming(this).broadcast();
            case "filtered":
                return new Consuming(this).filtered();
            case "latency":
                return new Consuming(this).latency();
            case "check-send-rt":
                return new Mqadmin(this).checkingSendRt();
            case "cluster-rt":
                return new Mqadmin(this).clusterRt();
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

    // -- the first acknowledged send --------------------------------------------------------------
    private String firstSend() {
        while (true) {
            try {
                acknowledged(producer.send(new Message("bench-first", bodies[0]), 1_000));
                // System.nanoTime is CLOCK_MONOTONIC on Linux, which whoever started us reads, too
                return json("first-send", "\"acked_at_ns\": " + System.nanoTime(), 1, 1, 0, null);
            } catch (Exception notYet) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(5));
            }
        }
    }

    // -- sending ----------------------------------------------------------------------------------
    private Work sending() throws Exception {
        String topic = createTopic("bench-send");
        int batch = number("batch");
        return flooding("send", topic, batch, first -> acknowledged(sendOnce(topic, first, batch)));
    }

    /** One thread; so many sends are under way at any time, and callbacks hear of them. */
    private Work sendingAsync() throws Exception {
        String topic = createTopic("bench-async");
        int inFlight = number("in_flight");
        return seconds -> {
            long before = stored(topic);
            long sent = 0;
            Semaphore room = new Semaphore(inFlight);
            AtomicReference<Throwable> failure = new AtomicReference<>();
            long began = System.nanoTime();
            long until = began + (long) (seconds * 1e9);
            while (failure.get() == null && System.nanoTime() < until) {
                room.acquire();
                producer.send(new Message(topic, body(sent++)), new SendCallback() {
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
            double took = (System.nanoTime() - began) / 1e9;
            if (failure.get() != null) {
                throw new IllegalStateException("a send failed", failure.get());
            }
            long there = stored(topic, before + sent) - before;
            return json("send-async", rate(sent, took), sent, there, took, null);
        };
    }

    /** Few are answered: the watch stops when the server has stored all of it. */
    private Work sendingOneway() throws Exception {
        String topic = createTopic("bench-oneway");
        Sender sender = number -> {
            Message message = new Message(topic, body(number));
            if (number % ONEWAY_RUN == 0) {
                acknowledged(producer.send(message));
            } else {
                producer.sendOneway(message);
            }
        };
        return seconds -> {
            long before = stored(topic);
            long began = System.nanoTime();
            Flood flood = flood(sender, number("in_flight"), 1, seconds, -1, 0);
            long there = stored(topic, before + flood.messages) - before;
            double took = (System.nanoTime() - began) / 1e9;
            String values = rate(flood.messages, took);
            return json("oneway", values, flood.messages, there, took, null);
        };
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

    /** Flood and count. */
    Work flooding(String work, String topic, int batch, Sender sender) {
        return seconds -> {
            long before = stored(topic);
            Flood flood = flood(sender, number("in_flight"), batch, seconds, -1, 0);
            long there = stored(topic, before + flood.messages) - before;
            String values = rate(flood.messages, flood.tookSeconds) + ", "
                + quantiles(flood.tookNanos);
            return json(work, values, flood.messages, there, flood.tookSeconds, null);
        };
    }

    static String rate(long messages, double seconds) {
        return String.format(Locale.ROOT, "\"rate\": %.3f", messages / seconds);
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
                create(topic, queues);
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

    /** RocketMQ 5 wants a map of attributes as well. */
    private void create(String topic, int queues) throws Exception {
        for (Method method : DefaultMQProducer.class.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            boolean wanted = method.getName().equals("createTopic") && types.length >= 3
                && types[2] == int.class;
            if (wanted && types.length == 3) {
                call(method, "TBW102", topic, queues);
                return;
            }
            if (wanted && types.length == 4 && types[3] == Map.class) {
                call(method, "TBW102", topic, queues, Map.of());
                return;
            }
        }
        throw new IllegalStateException("this client makes no topics");
    }

    private void call(Method method, Object... arguments) throws Exception {
        try {
            method.invoke(producer, arguments);
        } catch (InvocationTargetException failed) {
            if (failed.getCause() instanceof MQClientException) {
                throw (MQClientException) failed.getCause();
            }
            throw failed;
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
    static String json(
        String work, String values, long sent, long stored, double seconds, Long handed) {
        return json(work, values, sent, stored, seconds, handed, null, sent);
    }

    /** With how many should have been handed out, and how many were worked on, if not all, once. */
    static String json(String work, String values, long sent, long stored, double seconds,
        Long handed, Long due, long messages) {
        return String.format(Locale.ROOT, "{\"work\": \"%s\", \"values\": {%s}, \"sent\": %d,"
            + " \"stored\": %d, \"handed\": %d, \"due\": %d, \"messages\": %d,"
            + " \"seconds\": %.6f}", work, values, sent, stored, handed, due, messages, seconds);
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
