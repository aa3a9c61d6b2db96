import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * One store under two servers: what the first is left with must be found at the second.
 *
 * <p>Two programs in a row, with the same mark; between them the server is stopped, and another one
 * started on its files. They are run by name only.
 */
final class Moving {
    private static final int PLAIN = 20;
    private static final int BATCH = 5;
    private static final int LONGEST_LEVEL = 18;
    private static final int CONSUMED = 7;

    private Moving() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("leave", Moving::leave);
        all.put("find", Moving::find);
    }

    private static String word(Stand stand, String kind) {
        return "Moving" + stand.mark() + "-" + kind;
    }

    private static TransactionMQProducer transacting(
        Stand stand, LocalTransactionState whenAsked, Queue<String> asked
    ) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(word(stand, "transacting"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.add(Stand.body(message));
                return whenAsked;
            }
        });
        return stand.started(producer);
    }

    private static void leave(Stand stand) throws Exception {
        String plain = stand.topic(word(stand, "plain"), 1);
        for (int number = 0; number < PLAIN; number++) {
            Message message = Stand.message(plain, "plain-" + number);
            message.setTags("tag-" + number % 2);
            message.setKeys("key-" + number);
            stand.producer().send(message);
        }
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < BATCH; number++) {
            batch.add(Stand.message(plain, "batch-" + number));
        }
        stand.producer().send(batch);
        DefaultMQPullConsumer consumer = stand.puller(word(stand, "group"));
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(plain).iterator().next();
        consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, CONSUMED, false);

        TransactionMQProducer producer =
            transacting(stand, LocalTransactionState.UNKNOW, new ConcurrentLinkedQueue<>());
        String transactions = stand.topic(word(stand, "transactions"), 1);
        for (LocalTransactionState state : LocalTransactionState.values()) {
            producer.sendMessageInTransaction(
                Stand.message(transactions, state.toString()), state);
        }
        stand.stored(transactions, 1);

        String again = stand.topic(word(stand, "again"), 1);
        DefaultMQPushConsumer member = stand.consumer(word(stand, "again-group"));
        member.subscribe(again, "nothing"); // whoever gives back is a known group
        member.registerMessageListener(Pushing.keeping(new ConcurrentLinkedQueue<>()));
        member.start();
        stand.producer().send(Stand.message(again, "given back"));
        MessageExt given = stand.stored(again, 1).get(0);
        DefaultMQPullConsumer giving = stand.puller(word(stand, "again-group"));
        giving.sendMessageBack(given, LONGEST_LEVEL, "broker-a");
        giving.sendMessageBack(given, -1, "broker-a");
        stand.stored(MixAll.getDLQTopic(word(stand, "again-group")), 1);

        String late = stand.topic(word(stand, "late"), 1);
        for (int number = 0; number < 2; number++) {
            Message message = Stand.message(late, "late-" + number);
            message.setDelayTimeLevel(LONGEST_LEVEL);
            stand.producer().send(message);
        }
        Stand.same(0, stand.stored(late).size(), "delayed messages that are early");
        stand.count("left", PLAIN + BATCH + 7);
    }

    private static void find(Stand stand) throws Exception {
        stand.awaitRoute(word(stand, "transactions"), 1);
        Queue<String> asked = new ConcurrentLinkedQueue<>();
        transacting(stand, LocalTransactionState.COMMIT_MESSAGE, asked);
        Queue<MessageExt> again = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer member = stand.consumer(word(stand, "again-group"));
        member.subscribe(word(stand, "again"), "nothing");
        member.registerMessageListener(Pushing.keeping(again));
        member.start();

        plain(stand);

        List<MessageExt> committed = stand.stored(word(stand, "transactions"), 2);
        Stand.same(Set.of("COMMIT_MESSAGE", "UNKNOW"), bodies(committed), "what is committed");
        Stand.same(List.of("UNKNOW"), new ArrayList<>(asked), "what was asked about");

        List<MessageExt> late = stand.stored(word(stand, "late"), 2);
        Stand.same(Set.of("late-0", "late-1"), bodies(late), "what is late");
        late.forEach(one -> Stand.check(
            one.getStoreTimestamp() - one.getBornTimestamp() >= 15_000, "it was early"));

        MessageExt back =
            stand.stored(MixAll.getRetryTopic(word(stand, "again-group")), 1).get(0);
        Stand.same("given back", Stand.body(back), "what was given back");
        Stand.same(1, back.getReconsumeTimes(), "attempts");
        Stand.same("given back", Stand.body(
            stand.stored(MixAll.getDLQTopic(word(stand, "again-group")), 1).get(0)), "dead");
        stand.count("found", PLAIN + BATCH + 6);
    }

    private static void plain(Stand stand) throws Exception {
        String plain = word(stand, "plain");
        List<MessageExt> stored = stand.stored(plain, PLAIN + BATCH);
        for (int number = 0; number < PLAIN; number++) {
            Stand.same("plain-" + number, Stand.body(stored.get(number)), "body");
            Stand.same("tag-" + number % 2, stored.get(number).getTags(), "tag");
            Stand.same((long) number, stored.get(number).getQueueOffset(), "offset");
        }
        for (int number = 0; number < BATCH; number++) {
            Stand.same("batch-" + number, Stand.body(stored.get(PLAIN + number)), "body");
        }
        long now = System.currentTimeMillis();
        Stand.same(Set.of("plain-3"), bodies(stand.producer().queryMessage(
            plain, "key-3", 32, now - 600_000, now).getMessageList()), "by key");
        DefaultMQPullConsumer consumer = stand.puller(word(stand, "group"));
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(plain).iterator().next();
        Stand.same((long) CONSUMED, consumer.fetchConsumeOffset(queue, true), "offset of a group");
        Stand.same(10, consumer.pull(queue, "tag-0", 0, 32).getMsgFoundList().size(), "by tag");
        SendResult next = stand.producer().send(Stand.message(plain, "next"));
        Stand.same((long) PLAIN + BATCH, next.getQueueOffset(), "where the next one went");
    }

    private static Set<String> bodies(List<MessageExt> messages) {
        return messages.stream().map(Stand::body).collect(Collectors.toCollection(TreeSet::new));
    }
}
