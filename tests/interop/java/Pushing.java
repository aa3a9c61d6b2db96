import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.hook.ConsumeMessageContext;
import org.apache.rocketmq.client.hook.ConsumeMessageHook;
import org.apache.rocketmq.client.hook.FilterMessageContext;
import org.apache.rocketmq.client.hook.FilterMessageHook;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** What one push consumer does with messages that come as they should. */
final class Pushing {
    private Pushing() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("push", Pushing::concurrent);
        all.put("push-orderly", Pushing::orderly);
        all.put("broadcasting", Pushing::broadcasting);
        all.put("push-live", Pushing::live);
        all.put("push-batches", Pushing::batches);
        all.put("push-suspended", Pushing::suspended);
        all.put("from-where", Pushing::fromWhere);
        all.put("consume-hooks", Pushing::hooks);
    }

    /** A listener that keeps what it was given. */
    static MessageListenerConcurrently keeping(Queue<MessageExt> seen) {
        return (messages, context) -> {
            seen.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    static List<String> bodies(Queue<MessageExt> seen) {
        return seen.stream().map(Stand::body).sorted().collect(Collectors.toList());
    }

    static void sendAll(Stand stand, List<Message> messages) throws Exception {
        for (Message message : messages) {
            stand.producer().send(message);
        }
    }

    private static void concurrent(Stand stand) throws Exception {
        String topic = stand.topic(4);
        List<Message> sent = stand.messages(topic, 100);
        sendAll(stand, sent);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(keeping(seen));
        consumer.start();
        Stand.awaitSize("messages", seen, 100);
        Stand.same(sent.stream().map(Stand::body).sorted().toList(), bodies(seen), "bodies");
        Looking.awaitCommitted(stand, consumer, topic, 100);
        consumer.shutdown();
        DefaultMQPullConsumer asking = stand.puller(stand.group());
        for (MessageQueue queue : asking.fetchSubscribeMessageQueues(topic)) {
            Stand.same(25L, asking.fetchConsumeOffset(queue, true), "offset of " + queue);
        }
        stand.count("seen", seen.size());
    }

    private static void orderly(Stand stand) throws Exception {
        String topic = stand.topic(3);
        for (int number = 0; number < 60; number++) {
            stand.producer().send(Stand.message(topic, "" + number),
                (queues, message, key) -> queues.get((Integer) key), number % 3);
        }
        Map<Integer, Queue<Integer>> seen = new ConcurrentHashMap<>();
        AtomicBoolean suspended = new AtomicBoolean();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                int number = Integer.parseInt(Stand.body(message));
                if (number == 30 && suspended.compareAndSet(false, true)) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                seen.computeIfAbsent(message.getQueueId(), none -> new ConcurrentLinkedQueue<>())
                    .add(number);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        Stand.await("60 messages", () -> seen.values().stream().mapToInt(Queue::size).sum() >= 60);
        Stand.check(suspended.get(), "the listener never suspended its queue");
        seen.forEach((queue, numbers) -> {
            List<Integer> wanted = new ArrayList<>();
            for (int number = queue; number < 60; number += 3) {
                wanted.add(number);
            }
            Stand.same(wanted, new ArrayList<>(numbers), "order in queue " + queue);
        });
        stand.count("seen", 60);
    }

    private static void broadcasting(Stand stand) throws Exception {
        String topic = stand.topic(2);
        List<Queue<MessageExt>> seen = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            Queue<MessageExt> own = new ConcurrentLinkedQueue<>();
            DefaultMQPushConsumer consumer = stand.consumer();
            consumer.setMessageModel(MessageModel.BROADCASTING);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(keeping(own));
            consumer.start();
            seen.add(own);
        }
        sendAll(stand, stand.messages(topic, 20));
        for (Queue<MessageExt> own : seen) {
            Stand.awaitSize("messages of a member", own, 20);
        }
        stand.count("seen_by_each", 20);
    }

    /** A pull that is held at the broker is answered when something comes. */
    private static void live(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<Long> waited = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one ->
                waited.add(System.currentTimeMillis() - one.getBornTimestamp()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int number = 1; number <= 10; number++) {
            stand.producer().send(Stand.message(topic, "live"));
            Stand.awaitSize("live messages", waited, number);
        }
        long slowest = waited.stream().mapToLong(Long::longValue).skip(1).max().orElseThrow();
        Stand.check(slowest < 5_000, "a message took " + slowest + " ms: nobody held the pull");
        stand.count("seen", waited.size());
    }

    private static void batches(Stand stand) throws Exception {
        String topic = stand.topic(1);
        sendAll(stand, stand.messages(topic, 64));
        Queue<Integer> sizes = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.setConsumeMessageBatchMaxSize(8);
        consumer.setPullBatchSize(16);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            sizes.add(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Stand.await("64 messages", () -> sizes.stream().mapToInt(Integer::intValue).sum() >= 64);
        Stand.check(sizes.stream().allMatch(size -> size <= 8), "too many at once: " + sizes);
        Stand.check(sizes.stream().anyMatch(size -> size == 8), "never eight: " + sizes);
        stand.count("seen", 64);
    }

    private static void suspended(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(keeping(seen));
        consumer.start();
        stand.producer().send(Stand.message(topic, "before"));
        Stand.awaitSize("the first message", seen, 1);
        consumer.suspend();
        sendAll(stand, stand.messages(topic, 5));
        consumer.resume();
        Stand.awaitSize("messages after resuming", seen, 6);
        stand.count("seen", 6);
    }

    private static void fromWhere(Stand stand) throws Exception {
        String topic = stand.topic(1);
        sendAll(stand, stand.messages(topic, 5));
        Stand.await("the next second", () -> {
            List<MessageExt> stored = stand.stored(topic, 5);
            return System.currentTimeMillis() / 1000 - stored.get(4).getStoreTimestamp() / 1000 > 1;
        });
        long middle = System.currentTimeMillis();
        for (int number = 5; number < 8; number++) {
            stand.producer().send(Stand.message(topic, "body-" + number));
        }
        Map<String, Integer> wanted = new HashMap<>();
        wanted.put("first", 8);
        wanted.put("time", 3);
        Map<String, Queue<MessageExt>> seen = new HashMap<>();
        for (String where : wanted.keySet()) {
            Queue<MessageExt> own = new ConcurrentLinkedQueue<>();
            seen.put(where, own);
            DefaultMQPushConsumer consumer = stand.consumer(stand.group() + "-" + where);
            if (where.equals("time")) {
                consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
                consumer.setConsumeTimestamp(
                    UtilAll.timeMillisToHumanString3(middle)); // of whole seconds
            }
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(keeping(own));
            consumer.start();
        }
        // a new group of a young topic begins at its first message, wherever it asks to begin
        for (String where : wanted.keySet()) {
            Stand.await("messages from " + where, () ->
                seen.get(where).size() >= wanted.get(where));
            stand.count(where, seen.get(where).size());
        }
    }

    private static void hooks(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        Queue<String> calls = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(keeping(seen));
        var inner = consumer.getDefaultMQPushConsumerImpl();
        inner.registerConsumeMessageHook(new ConsumeMessageHook() {
            @Override
            public String hookName() {
                return "seen";
            }

            @Override
            public void consumeMessageBefore(ConsumeMessageContext context) {
                calls.add("before");
            }

            @Override
            public void consumeMessageAfter(ConsumeMessageContext context) {
                calls.add("after " + context.isSuccess());
            }
        });
        inner.registerFilterMessageHook(new FilterMessageHook() {
            @Override
            public String hookName() {
                return "only odd ones";
            }

            @Override
            public void filterMessage(FilterMessageContext context) {
                context.getMsgList().removeIf(one -> Stand.body(one).endsWith("0"));
            }
        });
        consumer.start();
        sendAll(stand, stand.messages(topic, 2));
        Stand.awaitSize("calls", calls, 2);
        Stand.same(List.of("body-1"), bodies(seen), "bodies");
        Stand.same(List.of("before", "after true"), new ArrayList<>(calls), "calls");
        stand.count("calls", calls.size());
    }
}
