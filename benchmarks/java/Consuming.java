import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers: backlogs in every way they can be handed out, and one message at a time. */
final class Consuming {
    static final int PASSES = 100;

    private static final String FILTER = "region = 'north' AND amount > " + (PASSES - 2);

    private final RocketmqDriver driver;

    Consuming(RocketmqDriver driver) {
        this.driver = driver;
    }

    /** Counts what listeners are given, and looks at the bodies. */
    static final class Drain {
        final long goal;
        final AtomicLong handed = new AtomicLong();
        final AtomicReference<String> complaint = new AtomicReference<>();

        private final AtomicLong bytes = new AtomicLong();
        private final AtomicLong firstNanos = new AtomicLong();
        private final AtomicLong lastNanos = new AtomicLong();
        private final CountDownLatch done = new CountDownLatch(1);
        private final Map<String, Long> nextOffsets = new ConcurrentHashMap<>();

        Drain(long goal) {
            this.goal = goal;
        }

        double seconds() {
            return (lastNanos.get() - firstNanos.get()) / 1e9;
        }

        void take(List<MessageExt> messages) {
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

        /** The same, where each queue's messages must come one after the other, none left out. */
        void takeInOrder(String member, List<MessageExt> messages) {
            for (MessageExt message : messages) {
                String queue = member + message.getQueueId();
                long offset = message.getQueueOffset();
                Long expected = nextOffsets.put(queue, offset + 1);
                if (offset != (expected == null ? 0 : expected)) {
                    complaint.set("offset " + offset + " came instead of " + expected);
                }
            }
            take(messages);
        }

        void await(int size) throws InterruptedException {
            long seen = -1;
            while (!done.await(RocketmqDriver.STUCK_AFTER_S, TimeUnit.SECONDS)) {
                if (seen == handed.get()) {
                    throw new IllegalStateException("only " + seen + " of " + goal + " came");
                }
                seen = handed.get();
            }
            if (bytes.get() < goal * size) {
                throw new IllegalStateException("bodies are too short: " + bytes.get());
            }
            if (complaint.get() != null) {
                throw new IllegalStateException(complaint.get());
            }
        }
    }

    // -- a backlog --------------------------------------------------------------------------------
    /** Starts the members that hand a topic's messages to a drain. */
    private interface Members {
        List<DefaultMQPushConsumer> start(String topic, String group, Drain drain) throws Exception;
    }

    RocketmqDriver.Work consuming() throws Exception {
        boolean batch = driver.text("handler").equals("batch");
        return draining("consume", 1, 1, (topic, group, drain) -> {
            DefaultMQPushConsumer consumer = consumer(group);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                drain.take(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.setConsumeMessageBatchMaxSize(batch ? consumer.getPullBatchSize() : 1);
            return started(consumer);
        });
    }

    RocketmqDriver.Work inOrder() throws Exception {
        return draining("ordered", 1, 1, (topic, group, drain) -> {
            DefaultMQPushConsumer consumer = consumer(group);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                drain.takeInOrder("", messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            return started(consumer);
        });
    }

    RocketmqDriver.Work broadcast() throws Exception {
        // read when the client's class is loaded; by default it would be in the user's home
        System.setProperty("rocketmq.client.localOffsetStoreDir",
            System.getProperty("user.dir") + "/offsets");
        return draining("broadcast", 2, 1, (topic, group, drain) -> {
            List<DefaultMQPushConsumer> members = new ArrayList<>();
            for (String name : new String[] {"first", "second"}) {
                DefaultMQPushConsumer consumer = consumer(group);
                consumer.setInstanceName(name);
                consumer.setMessageModel(Enum.valueOf(
                    consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
                consumer.subscribe(topic, "*");
                consumer.registerMessageListener(
                    (MessageListenerConcurrently) (messages, context) -> {
                        drain.take(messages);
                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                    });
                members.addAll(started(consumer));
            }
            return members;
        });
    }

    RocketmqDriver.Work filtered() throws Exception {
        return draining("filtered", 1, PASSES, (topic, group, drain) -> {
            DefaultMQPushConsumer consumer = consumer(group);
            consumer.subscribe(topic, MessageSelector.bySql(FILTER));
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                drain.take(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            return started(consumer);
        });
    }

    /**
     * Load a backlog, which a new group drains at each command; each message is given to so many
     * members, or one message in so many is. The rate is that of messages that were handed out, or
     * passed over.
     */
    private RocketmqDriver.Work draining(String work, int members, int share, Members starting)
        throws Exception {
        int batch = RocketmqDriver.LOAD_BATCH;
        int messages = Math.max(1, driver.number("messages") / batch) * batch;
        String topic = driver.load("bench-" + work, messages,
            share == 1 ? this::plain : this::sized);
        AtomicLong groups = new AtomicLong();
        return seconds -> {
            Drain drain = new Drain((long) messages * members / share);
            List<DefaultMQPushConsumer> running =
                starting.start(topic, topic + "-group-" + groups.getAndIncrement(), drain);
            drain.await(driver.number("size"));
            for (DefaultMQPushConsumer consumer : running) {
                consumer.shutdown();
            }
            long worked = (long) messages * members;
            String values = RocketmqDriver.rate(worked, drain.seconds());
            return RocketmqDriver.json(work, values, messages, driver.stored(topic),
                drain.seconds(), drain.handed.get(), drain.goal, worked);
        };
    }

    private Message plain(String topic, long number) {
        return new Message(topic, driver.body(number));
    }

    private Message sized(String topic, long number) {
        Message message = plain(topic, number);
        message.putUserProperty("region", "north");
        message.putUserProperty("amount", Long.toString(number % PASSES));
        return message;
    }

    DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(driver.text("address"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    private static List<DefaultMQPushConsumer> started(DefaultMQPushConsumer consumer)
        throws Exception {
        consumer.start();
        return List.of(consumer);
    }

    // -- end to end -------------------------------------------------------------------------------
    RocketmqDriver.Work latency() throws Exception {
        String topic = driver.createTopic("bench-latency");
        LinkedBlockingQueue<Long> arrived = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = consumer("bench-latency-group");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                arrived.add(RocketmqDriver.stamp(message.getBody()));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        AtomicLong numbers = new AtomicLong();
        int inARow = 0;
        while (inARow < 4 * driver.number("queues")) { // a group begins at the end of new queues
            inARow = once(topic, numbers.getAndIncrement(), arrived, 1_000) < 0 ? 0 : inARow + 1;
        }
        return seconds -> {
            long before = driver.stored(topic);
            RocketmqDriver.LongList took = new RocketmqDriver.LongList();
            long began = System.nanoTime();
            long until = began + (long) (seconds * 1e9);
            while (System.nanoTime() < until) {
                took.add(must(once(topic, numbers.getAndIncrement(), arrived, 30_000)));
            }
            double lasted = (System.nanoTime() - began) / 1e9;
            long there = driver.stored(topic) - before;
            String values = RocketmqDriver.quantiles(RocketmqDriver.LongList.sorted(took));
            return RocketmqDriver.json("latency", values, took.count(), there, lasted, null);
        };
    }

    private long once(String topic, long number, LinkedBlockingQueue<Long> arrived, long patience)
        throws Exception {
        byte[] body = driver.stamped(number);
        long began = System.nanoTime();
        RocketmqDriver.acknowledged(driver.producer.send(new Message(topic, body)));
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
}
