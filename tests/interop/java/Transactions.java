import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.hook.EndTransactionContext;
import org.apache.rocketmq.client.hook.EndTransactionHook;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that are seen only if their transaction is committed. */
final class Transactions {
    private Transactions() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("transaction-check", Transactions::check);
        all.put("transaction-given-up", Transactions::givenUp);
        all.put("transaction", Transactions::commitAndRollback);
        all.put("transaction-other-member", Transactions::otherMember);
    }

    /** Says at once what the argument says, and at a check what was set for the body. */
    private static final class Says implements TransactionListener {
        final Map<String, LocalTransactionState> whenAsked = new ConcurrentHashMap<>();
        final Map<String, LocalTransactionState> whenAskedAgain = new ConcurrentHashMap<>();
        final Map<String, AtomicInteger> asked = new ConcurrentHashMap<>();
        final Queue<MessageExt> checked = new ConcurrentLinkedQueue<>();

        /** How often it was asked about this body. */
        int times(String body) {
            AtomicInteger count = asked.get(body);
            return count == null ? 0 : count.get();
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return (LocalTransactionState) argument;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = Stand.body(message);
            checked.add(message);
            int times = asked.computeIfAbsent(body, none -> new AtomicInteger()).incrementAndGet();
            return (times > 1 && whenAskedAgain.containsKey(body) ? whenAskedAgain : whenAsked)
                .getOrDefault(body, LocalTransactionState.UNKNOW);
        }
    }

    private static TransactionMQProducer producer(Stand stand, TransactionListener listener)
        throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(stand.group());
        producer.setTransactionListener(listener);
        return stand.started(producer);
    }

    private static Queue<MessageExt> consumed(Stand stand, String topic) throws Exception {
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(Pushing.keeping(seen));
        consumer.start();
        return seen;
    }

    private static TransactionSendResult send(
        TransactionMQProducer producer, String topic, String body, LocalTransactionState state
    ) throws Exception {
        Message message = new Message(topic, "a-tag", "key-" + body, body.getBytes());
        TransactionSendResult result = producer.sendMessageInTransaction(message, state);
        Stand.same(SendStatus.SEND_OK, result.getSendStatus(), "status");
        Stand.same(state, result.getLocalTransactionState(), "local state");
        return result;
    }

    private static void commitAndRollback(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = consumed(stand, topic);
        Says says = new Says();
        TransactionMQProducer producer = producer(stand, says);
        Queue<String> ended = new ConcurrentLinkedQueue<>();
        producer.getDefaultMQProducerImpl().registerEndTransactionHook(new EndTransactionHook() {
            @Override
            public String hookName() {
                return "ended";
            }

            @Override
            public void endTransaction(EndTransactionContext context) {
                ended.add(context.getTransactionState() + " " + context.isFromTransactionCheck());
            }
        });
        send(producer, topic, "rolled-back", LocalTransactionState.ROLLBACK_MESSAGE);
        TransactionSendResult sent =
            send(producer, topic, "committed", LocalTransactionState.COMMIT_MESSAGE);
        Stand.awaitSize("messages", seen, 1);
        MessageExt message = seen.peek();
        Stand.same("committed", Stand.body(message), "body");
        Stand.same(sent.getMsgId(), message.getMsgId(), "unique id");
        Stand.same(sent.getMsgId(), message.getTransactionId(), "transaction id");
        Stand.same("a-tag", message.getTags(), "tag");
        Stand.same("key-committed", message.getKeys(), "keys");
        Stand.same("true", message.getProperty(MessageConst.PROPERTY_TRANSACTION_PREPARED),
            "mark of a transaction");
        Stand.same(stand.group(), message.getProperty(MessageConst.PROPERTY_PRODUCER_GROUP),
            "producer group");
        ended.removeIf(call -> call.endsWith(" true")); // a busy machine may have been asked again
        Stand.same(List.of("ROLLBACK_MESSAGE false", "COMMIT_MESSAGE false"),
            new ArrayList<>(ended), "calls of the hook");
        stand.stored(topic, 1);
        neverCheckedAgain(producer, topic, says);
        stand.count("committed", 1);
        stand.count("rolled_back", 1);
    }

    /**
     * Between two checks of an open one, none of what ended before. A machine that is busy for longer
     * than the broker waits for an outcome may have made checks until then.
     */
    private static void neverCheckedAgain(TransactionMQProducer producer, String topic, Says says)
        throws Exception {
        send(producer, topic, "open", LocalTransactionState.UNKNOW);
        Stand.await("a check of the open one", () -> says.times("open") >= 1);
        int before = says.times("committed") + says.times("rolled-back");
        Stand.await("another check of the open one", () -> says.times("open") >= 2);
        Stand.same(before, says.times("committed") + says.times("rolled-back"), "checks");
    }

    private static void check(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = consumed(stand, topic);
        Says says = new Says();
        says.whenAsked.put("good", LocalTransactionState.COMMIT_MESSAGE);
        says.whenAsked.put("bad", LocalTransactionState.ROLLBACK_MESSAGE);
        // Decided by the listener: the broker discards it soon after, and a busy machine is late.
        says.whenAskedAgain.put("undecided", LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer producer = producer(stand, says);
        TransactionSendResult good =
            send(producer, topic, "good", LocalTransactionState.UNKNOW);
        send(producer, topic, "bad", LocalTransactionState.UNKNOW);
        send(producer, topic, "undecided", LocalTransactionState.UNKNOW);
        Stand.awaitSize("committed messages", seen, 2);
        Stand.same("good", Stand.body(seen.peek()), "body");
        Stand.same(good.getMsgId(), seen.peek().getMsgId(), "unique id");
        Stand.check(says.times("undecided") >= 2, "what is undecided was checked once");
        Stand.same(1, says.asked.get("good").get(), "checks of the good one");
        Stand.same(1, says.asked.get("bad").get(), "checks of the bad one");
        for (MessageExt one : says.checked) {
            Stand.same(topic, one.getTopic(), "topic at the check");
            Stand.same("key-" + Stand.body(one), one.getKeys(), "keys at the check");
            Stand.check(one.getTransactionId() != null, "no transaction id at the check");
        }
        stand.count("committed", 2);
        stand.count("rolled_back", 1);
    }

    /** The server asks so often (transactionCheckMax) and no longer, and puts it aside. */
    private static void givenUp(Stand stand) throws Exception {
        String topic = stand.topic(1);
        String forgotten = "forgotten by " + stand.group();
        Says says = new Says();
        TransactionMQProducer producer = producer(stand, says);
        producer.fetchPublishMessageQueues(topic); // from now on the broker hears from it
        // RocketMQ's broker counts a check for which it knows no producer.
        Stand.await("a broker that knows the producer", () -> {
            try {
                return !stand.admin().examineProducerConnectionInfo(stand.group(), topic)
                    .getConnectionSet().isEmpty();
            } catch (MQBrokerException notYet) {
                return false;
            }
        });
        send(producer, topic, forgotten, LocalTransactionState.UNKNOW);
        Stand.await("its place among the discarded", () -> {
            try {
                return stand.stored("TRANS_CHECK_MAX_TIME_TOPIC").stream()
                    .anyMatch(one -> Stand.body(one).equals(forgotten));
            } catch (org.apache.rocketmq.client.exception.MQClientException notYet) {
                return false;
            }
        });
        int asked = says.asked.get(forgotten).get();
        Stand.same(3, asked, "checks");
        Stand.same(0, stand.stored(topic).size(), "messages to see");
        stand.count("checks", asked);
    }

    /** A producer that has gone is asked about through another one of its group. */
    private static void otherMember(Stand stand) throws Exception {
        String topic = stand.topic(1);
        TransactionMQProducer gone = new TransactionMQProducer(stand.group());
        gone.setTransactionListener(new Says());
        stand.started(gone);
        send(gone, topic, "orphan", LocalTransactionState.UNKNOW);
        gone.shutdown();
        Says says = new Says();
        says.whenAsked.put("orphan", LocalTransactionState.COMMIT_MESSAGE);
        producer(stand, says).fetchPublishMessageQueues(topic);
        Stand.same("orphan", Stand.body(stand.stored(topic, 1).get(0)), "body");
        Stand.same(1, says.checked.size(), "checks");
        stand.count("committed", 1);
    }
}
