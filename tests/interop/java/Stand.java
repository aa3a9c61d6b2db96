import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What one scenario works with: topics and groups of its own, clients that end with it, counts.
 *
 * <p>Waiting is for something; it ends with an error after {@link #PATIENCE_S} seconds.
 */
final class Stand implements AutoCloseable {
    static final int PATIENCE_S = 30;
    private static final long LOOK_EVERY_NS = TimeUnit.MILLISECONDS.toNanos(20);
    /** Routes and heartbeats: a heartbeat that a rebalance could not send would come after 30 s. */
    private static final int REPEAT_EVERY_MS = 1_000;
    private static final String ANY_TOPIC = "TBW102";

    final String name;
    final String address;
    private final String mark;
    private final Map<String, Long> counts = new TreeMap<>();
    private final Deque<Runnable> closing = new ArrayDeque<>();
    private final AtomicInteger clients = new AtomicInteger();
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer reader;
    private DefaultMQAdminExt admin;

    Stand(String name, String address, String mark) {
        this.name = name;
        this.address = address;
        this.mark = mark;
    }

    // -- names ------------------------------------------------------------------------------------
    String topicName() {
        return "Interop" + mark + "-" + name;
    }

    /** A word of this run. */
    String mark() {
        return mark;
    }

    String group() {
        return "interop" + mark + "-" + name;
    }

    // -- clients ----------------------------------------------------------------------------------
    /** Settings that every client of ours has; each is a client by itself to the server. */
    <T extends ClientConfig> T told(T client) {
        client.setNamesrvAddr(address);
        client.setPollNameServerInterval(REPEAT_EVERY_MS);
        client.setHeartbeatBrokerInterval(REPEAT_EVERY_MS);
        client.setInstanceName(name + "-" + clients.incrementAndGet());
        return client;
    }

    /** One producer that the scenario may use for whatever is not special. */
    DefaultMQProducer producer() throws MQClientException {
        if (producer == null) {
            producer = started(new DefaultMQProducer(group() + "-sender"));
        }
        return producer;
    }

    <T extends DefaultMQProducer> T started(T one) throws MQClientException {
        told(one).setSendMsgTimeout(10_000);
        one.start();
        closing.push(one::shutdown);
        return one;
    }

    /** A push consumer, not started: from the first message on, in the scenario's group. */
    DefaultMQPushConsumer consumer() {
        return consumer(group());
    }

    DefaultMQPushConsumer consumer(String group) {
        return made(new DefaultMQPushConsumer(group));
    }

    DefaultMQPushConsumer made(DefaultMQPushConsumer one) {
        told(one).setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        one.setConsumeThreadMin(2);
        one.setConsumeThreadMax(4);
        closing.push(one::shutdown);
        return one;
    }

    /** Tells the code of every request that is sent or, by the server, received. */
    static RPCHook asked(IntConsumer told) {
        return new RPCHook() {
            @Override
            public void doBeforeRequest(String address, RemotingCommand request) {
                told.accept(request.getCode());
            }

            @Override
            public void doAfterResponse(
                String address, RemotingCommand request, RemotingCommand response
            ) {
                // requests are what is told of
            }
        };
    }

    DefaultMQPullConsumer puller(String group) throws MQClientException {
        DefaultMQPullConsumer one = told(new DefaultMQPullConsumer(group));
        one.start();
        closing.push(one::shutdown);
        return one;
    }

    DefaultLitePullConsumer litePuller(String group) {
        DefaultLitePullConsumer one = told(new DefaultLitePullConsumer(group));
        one.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        one.setPollTimeoutMillis(200);
        closing.push(one::shutdown);
        return one;
    }

    DefaultMQAdminExt admin() throws MQClientException {
        if (admin == null) {
            admin = told(new DefaultMQAdminExt(10_000));
            admin.setAdminExtGroup(group() + "-admin");
            admin.start();
            closing.push(admin::shutdown);
        }
        return admin;
    }

    /** Where the broker listens, as the name server says. */
    String broker() throws Exception {
        var brokers = admin().examineBrokerClusterInfo().getBrokerAddrTable().values();
        same(1, brokers.size(), "brokers");
        return brokers.iterator().next().selectBrokerAddr();
    }

    // -- topics -----------------------------------------------------------------------------------
    String topic(int queues) throws Exception {
        return topic(topicName(), queues);
    }

    String topic(String topic, int queues) throws Exception {
        producer().createTopic(ANY_TOPIC, topic, queues);
        awaitRoute(topic, queues);
        return topic;
    }

    /** Until the name server knows it; a broker that starts serves a moment before. */
    void awaitRoute(String topic, int queues) throws Exception {
        await("route of " + topic, () -> {
            try {
                return producer().fetchPublishMessageQueues(topic).size() == queues;
            } catch (MQClientException notYet) {
                return false;
            }
        });
    }

    List<Message> messages(String topic, int count) {
        List<Message> made = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            made.add(message(topic, "body-" + number));
        }
        return made;
    }

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** Everything that a topic holds now, queue by queue. */
    List<MessageExt> stored(String topic) throws Exception {
        if (reader == null) {
            reader = puller(group() + "-reader");
        }
        List<MessageExt> found = new ArrayList<>();
        for (MessageQueue queue : reader.fetchSubscribeMessageQueues(topic)) {
            long offset = reader.minOffset(queue);
            while (offset < reader.maxOffset(queue)) {
                PullResult pulled = reader.pull(queue, "*", offset, 32);
                if (pulled.getPullStatus() == PullStatus.FOUND) {
                    found.addAll(pulled.getMsgFoundList());
                }
                offset = pulled.getNextBeginOffset();
            }
        }
        return found;
    }

    /** The same, once there are so many. */
    List<MessageExt> stored(String topic, int count) throws Exception {
        await(count + " messages in " + topic, () -> {
            try {
                return stored(topic).size() >= count;
            } catch (MQClientException notYet) {
                return false; // the topic may come into being with its first message
            }
        });
        List<MessageExt> found = stored(topic);
        same(count, found.size(), "messages in " + topic);
        return found;
    }

    // -- waiting and judging ----------------------------------------------------------------------
    static void await(String what, Callable<Boolean> there) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!there.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("waited in vain for " + what);
            }
            LockSupport.parkNanos(LOOK_EVERY_NS);
        }
    }

    static void awaitSize(String what, Collection<?> seen, int count) throws Exception {
        try {
            await(what, () -> seen.size() >= count);
        } catch (AssertionError inVain) {
            throw new AssertionError(inVain.getMessage() + ": " + seen.size() + " of " + count);
        }
        same(count, seen.size(), what);
    }

    static void same(Object expected, Object found, String what) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(what + ": expected " + expected + ", found " + found);
        }
    }

    static void check(boolean good, String what) {
        if (!good) {
            throw new AssertionError(what);
        }
    }

    void count(String what, long number) {
        counts.put(what, number);
    }

    Map<String, Long> counts() {
        return counts;
    }

    @Override
    public void close() {
        while (!closing.isEmpty()) {
            closing.pop().run();
        }
    }
}
