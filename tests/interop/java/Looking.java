import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.CMResult;
import org.apache.rocketmq.common.protocol.body.ConsumeMessageDirectlyResult;
import org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.tools.admin.api.MessageTrack;
import org.apache.rocketmq.tools.admin.api.TrackType;

/** Looking for messages, and at what consumers do with them. */
final class Looking {
    private static final long MINUTE_MS = 60_000;

    private Looking() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("query-by-id", Looking::byId);
        all.put("query-by-key", Looking::byKey);
        all.put("queue-ends", Looking::queueEnds);
        all.put("who-consumed", Looking::whoConsumed);
        all.put("running-info", Looking::runningInfo);
        all.put("consume-directly", Looking::consumeDirectly);
        all.put("clone-offset", Looking::cloneOffset);
    }

    private static void byId(Stand stand) throws Exception {
        String topic = stand.topic(1);
        SendResult sent = stand.producer().send(Stand.message(topic, "wanted"));
        for (String id : List.of(sent.getOffsetMsgId(), sent.getMsgId())) {
            Stand.await("the message by " + id, () -> {
                try {
                    return Stand.body(stand.producer().viewMessage(topic, id)).equals("wanted");
                } catch (MQClientException notIndexedYet) {
                    return false;
                }
            });
        }
        MessageExt found = stand.producer().viewMessage(sent.getOffsetMsgId());
        Stand.same(sent.getMsgId(), found.getMsgId(), "unique id");
        Stand.same(sent.getQueueOffset(), found.getQueueOffset(), "offset");
        stand.count("found", 2);
    }

    private static void byKey(Stand stand) throws Exception {
        String topic = stand.topic(2);
        for (int number = 0; number < 6; number++) {
            stand.producer().send(new Message(topic, "", "all number-" + number,
                ("body-" + number).getBytes()));
        }
        long now = System.currentTimeMillis();
        Callable<Set<String>> query = () -> {
            QueryResult result = stand.producer().queryMessage(
                topic, "all", 32, now - MINUTE_MS, now + MINUTE_MS);
            return result.getMessageList().stream().map(Stand::body)
                .collect(Collectors.toCollection(TreeSet::new));
        };
        Stand.await("six messages by key", () -> {
            try {
                return query.call().size() == 6;
            } catch (MQClientException nothingYet) {
                return false;
            }
        });
        QueryResult one = stand.producer().queryMessage(
            topic, "number-3", 32, now - MINUTE_MS, now + MINUTE_MS);
        Stand.same(List.of("body-3"), one.getMessageList().stream().map(Stand::body).toList(),
            "by one key");
        try {
            stand.producer().queryMessage(topic, "nobody", 32, now - MINUTE_MS, now + MINUTE_MS);
            throw new AssertionError("something was found by a key that nothing has");
        } catch (MQClientException nothing) {
            stand.count("found", 7);
        }
    }

    private static void queueEnds(Stand stand) throws Exception {
        String topic = stand.topic(1);
        MessageQueue queue =
            stand.producer().fetchPublishMessageQueues(topic).iterator().next();
        Stand.same(0L, stand.producer().maxOffset(queue), "max offset of an empty queue");
        Stand.same(-1L, stand.producer().earliestMsgStoreTime(queue), "time of an empty queue");
        for (int number = 0; number < 3; number++) {
            stand.producer().send(Stand.message(topic, "" + number));
            long sent = System.currentTimeMillis();
            Stand.await("the next millisecond", () -> System.currentTimeMillis() > sent + 1);
        }
        List<MessageExt> stored = stand.stored(topic, 3);
        Stand.same(0L, stand.producer().minOffset(queue), "min offset");
        Stand.same(3L, stand.producer().maxOffset(queue), "max offset");
        Stand.same(stored.get(0).getStoreTimestamp(),
            stand.producer().earliestMsgStoreTime(queue), "time of the first");
        Stand.same(0L, stand.producer().searchOffset(queue, 1_000L), "long ago");
        for (MessageExt message : stored) {
            Stand.same(message.getQueueOffset(),
                stand.producer().searchOffset(queue, message.getStoreTimestamp()), "its time");
        }
        stand.count("offsets", 3);
    }

    private static DefaultMQPushConsumer consumer(
        Stand stand, String topic, Queue<MessageExt> seen
    ) throws Exception {
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(Pushing.keeping(seen));
        consumer.start();
        return consumer;
    }

    /** Until the server has the group's offsets; a listener returns before its client counts. */
    static void awaitCommitted(
        Stand stand, DefaultMQPushConsumer consumer, String topic, long sum
    ) throws Exception {
        String group = consumer.getConsumerGroup();
        Stand.await("committed offsets of " + group, () -> {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            try {
                return stand.admin().examineConsumeStats(group, topic).getOffsetTable().values()
                    .stream().mapToLong(one -> one.getConsumerOffset()).sum() == sum;
            } catch (MQClientException notYet) {
                return false;
            }
        });
    }

    private static void whoConsumed(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer(stand, topic, seen);
        stand.producer().send(Stand.message(topic, "x"));
        Stand.awaitSize("the message", seen, 1);
        awaitCommitted(stand, consumer, topic, 1);
        Stand.same(Set.of(stand.group()),
            Set.copyOf(stand.admin().queryTopicConsumeByWho(topic).getGroupList()), "groups");
        List<MessageTrack> tracks = stand.admin().messageTrackDetail(seen.peek());
        Stand.same(1, tracks.size(), "groups");
        Stand.same(stand.group(), tracks.get(0).getConsumerGroup(), "group");
        Stand.same(TrackType.CONSUMED, tracks.get(0).getTrackType(), "what it did");
        stand.count("groups", 1);
    }

    private static void runningInfo(Stand stand) throws Exception {
        String topic = stand.topic(2);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer(stand, topic, seen);
        Pushing.sendAll(stand, stand.messages(topic, 4));
        Stand.awaitSize("messages", seen, 4);
        // Tools ask by its route, and RocketMQ's broker registers it a moment after the first beat.
        stand.awaitRoute(MixAll.getRetryTopic(stand.group()), 1);
        ConsumerRunningInfo info = stand.admin().getConsumerRunningInfo(
            stand.group(), consumer.buildMQClientId(), true);
        Stand.same(Set.of("*"), info.getSubscriptionSet().stream()
            .map(one -> one.getSubString()).collect(Collectors.toSet()), "subscriptions");
        Stand.same(2L, info.getMqTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).count(), "queues");
        Stand.same("CONSUME_PASSIVELY",
            "" + info.getProperties().get(ConsumerRunningInfo.PROP_CONSUME_TYPE), "type");
        Stand.check(info.getStatusTable().containsKey(topic), "no figures for the topic");
        Stand.check(info.getJstack().contains("ConsumeMessageThread"), "no threads");
        stand.count("queues", 2);
    }

    private static void consumeDirectly(Stand stand) throws Exception {
        String topic = stand.topic(1);
        AtomicInteger calls = new AtomicInteger();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (calls.incrementAndGet() == 3) {
                throw new IllegalStateException("on purpose");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        SendResult sent = stand.producer().send(Stand.message(topic, "again"));
        Stand.await("the message", () -> calls.get() == 1);
        ConsumeMessageDirectlyResult good = stand.admin().consumeMessageDirectly(
            stand.group(), consumer.buildMQClientId(), sent.getOffsetMsgId());
        Stand.same(CMResult.CR_SUCCESS, good.getConsumeResult(), "result");
        Stand.same(false, good.isOrder(), "order");
        ConsumeMessageDirectlyResult bad = stand.admin().consumeMessageDirectly(
            stand.group(), consumer.buildMQClientId(), topic, sent.getMsgId());
        Stand.same(CMResult.CR_THROW_EXCEPTION, bad.getConsumeResult(), "result of the third");
        Stand.check(bad.getRemark().contains("on purpose"), "remark " + bad.getRemark());
        stand.count("calls", calls.get());
    }

    /** A live group goes back, and then forward over what it has not seen. */
    static void resetOffset(Stand stand) throws Exception {
        String topic = stand.topic(2);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer(stand, topic, seen);
        Pushing.sendAll(stand, stand.messages(topic, 10));
        Stand.awaitSize("messages", seen, 10);
        awaitCommitted(stand, consumer, topic, 10);
        Map<MessageQueue, Long> back = stand.admin().resetOffsetByTimestamp(
            topic, stand.group(), System.currentTimeMillis() - 60 * MINUTE_MS, true);
        Stand.same(2, back.size(), "queues");
        back.values().forEach(offset -> Stand.same(0L, offset, "where to go"));
        Stand.await("all messages once more", () -> seen.size() >= 20);
        Stand.same(10, new TreeSet<>(Pushing.bodies(seen)).size(), "bodies");
        // and forward, over what it has not seen, while it is busy with the first of them
        consumer.shutdown();
        Pushing.sendAll(stand, stand.messages(topic, 20));
        stand.stored(topic, 30);
        Queue<MessageExt> late = new ConcurrentLinkedQueue<>();
        CountDownLatch told = new CountDownLatch(1);
        DefaultMQPushConsumer busy = stand.consumer();
        busy.subscribe(topic, "*");
        busy.setConsumeThreadMin(1);
        busy.setConsumeThreadMax(1);
        busy.setPullBatchSize(1);
        busy.setPullThresholdForQueue(1);
        busy.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            late.addAll(messages);
            awaitQuietly(told);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        busy.start();
        Stand.awaitSize("the first", late, 1);
        Map<MessageQueue, Long> on = stand.admin().resetOffsetByTimestamp(
            topic, stand.group(), -1, true);
        Stand.same(30L, on.values().stream().mapToLong(Long::longValue).sum(), "the end");
        var queues = busy.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
        Stand.await("that it is told", () -> on.keySet().stream()
            .allMatch(one -> !queues.containsKey(one) || queues.get(one).isDropped()));
        told.countDown();
        stand.producer().send(Stand.message(topic, "behind the reset"));
        Stand.awaitSize("the first, and what came later", late, 2);
        Stand.check(Pushing.bodies(late).contains("behind the reset"), "it went over it");
        stand.count("seen", seen.size() + late.size());
    }

    private static void awaitQuietly(CountDownLatch told) {
        try {
            told.await(Stand.PATIENCE_S, TimeUnit.SECONDS);
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }

    private static void cloneOffset(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer(stand, topic, seen);
        Pushing.sendAll(stand, stand.messages(topic, 5));
        Stand.awaitSize("messages", seen, 5);
        awaitCommitted(stand, consumer, topic, 5);
        consumer.shutdown();
        String other = stand.group() + "-clone";
        stand.admin().cloneGroupOffset(stand.group(), other, topic, true);
        MessageQueue queue = stand.puller(other).fetchSubscribeMessageQueues(topic).iterator()
            .next();
        Stand.same(5L, stand.puller(other).fetchConsumeOffset(queue, true), "offset");
        stand.count("offset", 5);
    }
}
