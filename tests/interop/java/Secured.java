import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A client that signs its requests with RocketMQ's own hook, at a broker that decides them.
 *
 * <p>It is run by name only: the test creates the topics, the group and the account first.
 */
final class Secured {
    private static final String ORDERS = "SecuredOrders";
    private static final String OTHERS = "SecuredOthers";
    private static final String GROUP = "secured-group";
    private static final String WRITER = "secured-writer";
    private static final String SECRET = "secret-of-the-writer";
    private static final String EXCEPTION = "org.apache.rocketmq.acl.common.AclException: ";
    private static final int SENT = 20;

    private Secured() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("secured-writer", Secured::writer);
        all.put("secured-stranger", Secured::stranger);
        all.put("secured-forbidden", Secured::forbidden);
    }

    private static RPCHook signing(String user, String secret) {
        return new AclClientRPCHook(new SessionCredentials(user, secret));
    }

    /** Sends, a transaction, consumption, and a message that is consumed again. */
    private static void writer(Stand stand) throws Exception {
        RPCHook hook = signing(WRITER, SECRET);
        Set<String> seen = Collections.synchronizedSet(new TreeSet<>());
        DefaultMQPushConsumer consumer = stand.made(
            new DefaultMQPushConsumer(GROUP, hook, new AllocateMessageQueueAveragely()));
        consumer.subscribe(ORDERS, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (Stand.body(message).equals("body-0") && message.getReconsumeTimes() == 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                seen.add(Stand.body(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        TransactionMQProducer producer = new TransactionMQProducer(GROUP + "-sender", hook);
        producer.setTransactionListener(committing());
        stand.started(producer);
        for (Message message : stand.messages(ORDERS, SENT)) {
            Stand.same(SendStatus.SEND_OK, producer.send(message).getSendStatus(), "status");
        }
        producer.sendMessageInTransaction(Stand.message(ORDERS, "paid"), null);
        Stand.awaitSize("messages", seen, SENT + 1);
        stand.count("consumed", seen.size());
    }

    private static TransactionListener committing() {
        return new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        };
    }

    /** Without credentials, with unknown ones, and with a wrong secret. */
    private static void stranger(Stand stand) throws Exception {
        refusedSend(stand, null, ORDERS, "user anonymous has no right to Pub on Topic:" + ORDERS);
        for (String name : new String[] {"nemo-and-nobody", WRITER}) {
            refusedSend(stand, signing(name, "not-the-secret"), ORDERS,
                "Check signature failed for accessKey=" + name);
        }
        stand.count("refused", 3);
    }

    /** Other topics, other groups, and new topics. */
    private static void forbidden(Stand stand) throws Exception {
        RPCHook hook = signing(WRITER, SECRET);
        String user = "user " + WRITER + " has no right to ";
        refusedSend(stand, hook, OTHERS, user + "Pub on Topic:" + OTHERS);
        refusedPull(stand, hook, GROUP, OTHERS, user + "Sub on Topic:" + OTHERS);
        refusedPull(stand, hook, "other-group", ORDERS, user + "Sub on Group:other-group");
        DefaultMQProducer producer = stand.started(
            new DefaultMQProducer(stand.group() + "-creator", hook));
        refused("createTopic", user + "Create or Update on Topic:SecuredNew",
            () -> producer.createTopic("TBW102", "SecuredNew", 1));
        stand.count("refused", 4);
    }

    private static void refusedSend(Stand stand, RPCHook hook, String topic, String why)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(stand.group() + "-sender", hook);
        producer.setRetryTimesWhenSendFailed(0);
        stand.started(producer);
        refused("a send", why, () -> producer.send(Stand.message(topic, "x")));
    }

    private static void refusedPull(
        Stand stand, RPCHook hook, String group, String topic, String why
    ) throws Exception {
        DefaultMQPullConsumer consumer = stand.told(new DefaultMQPullConsumer(group, hook));
        consumer.start();
        try {
            MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
            refused("a pull", why, () -> consumer.pull(queue, "*", 0, 1));
        } finally {
            consumer.shutdown();
        }
    }

    private interface Attempt {
        void make() throws Exception;
    }

    /** The exception that the application gets, or one of its causes, says why. */
    private static void refused(String what, String why, Attempt attempt) throws Exception {
        try {
            attempt.make();
        } catch (Exception refusal) {
            StringBuilder text = new StringBuilder();
            for (Throwable one = refusal; one != null; one = one.getCause()) {
                text.append(one).append('\n');
            }
            Stand.check(text.toString().contains(EXCEPTION + why), what + ": " + text);
            return;
        }
        throw new AssertionError(what + " was not refused");
    }
}
