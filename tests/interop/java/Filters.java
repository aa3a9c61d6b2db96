import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;

/** Consumers that want a part of a topic only. */
final class Filters {
    private Filters() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("tag-filter", Filters::tags);
        all.put("tag-same-hash", Filters::sameHash);
        all.put("sql-filter", Filters::sql);
        all.put("sql-pull", Filters::sqlPull);
        all.put("sql-refused", Filters::sqlRefused);
    }

    private static void awaitOnly(Queue<MessageExt> seen, Set<String> wanted) throws Exception {
        Stand.awaitSize("messages that pass", seen, wanted.size());
        Stand.same(wanted, new TreeSet<>(Pushing.bodies(seen)), "what passed");
    }

    private static Queue<MessageExt> consumed(Stand stand, String topic, MessageSelector selector)
        throws Exception {
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener(Pushing.keeping(seen));
        consumer.start();
        return seen;
    }

    private static void tags(Stand stand) throws Exception {
        String topic = stand.topic(2);
        for (String tag : List.of("red", "green", "blue", "red", "none")) {
            Message message = Stand.message(topic, tag + stand.counts().size());
            message.setTags(tag);
            stand.producer().send(message);
            stand.count("sent-" + stand.counts().size(), 1);
        }
        stand.producer().send(Stand.message(topic, "without a tag"));
        Queue<MessageExt> seen = consumed(stand, topic, MessageSelector.byTag("red || blue"));
        awaitOnly(seen, new TreeSet<>(Set.of("red0", "blue2", "red3")));
        stand.counts().clear();
        stand.count("sent", 6);
        stand.count("seen", seen.size());
    }

    /** "Aa" and "BB" have one hash: the broker lets both pass, the consumer keeps its own. */
    private static void sameHash(Stand stand) throws Exception {
        String topic = stand.topic(1);
        for (String tag : List.of("Aa", "BB", "Aa")) {
            Message message = Stand.message(topic, tag);
            message.setTags(tag);
            stand.producer().send(message);
        }
        stand.stored(topic, 3);
        DefaultMQPullConsumer consumer = stand.puller(stand.group());
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        PullResult found = consumer.pull(queue, "BB", 0, 32);
        Stand.same(List.of("BB"), found.getMsgFoundList().stream().map(Stand::body).toList(),
            "what passed");
        Stand.same(3L, found.getNextBeginOffset(), "next offset");
        stand.count("seen", 1);
    }

    private static void sendPriced(Stand stand, String topic) throws Exception {
        for (int price = 0; price < 20; price++) {
            Message message = Stand.message(topic, String.format("price-%02d", price));
            message.setTags(price % 2 == 0 ? "even" : "odd");
            message.putUserProperty("price", "" + price);
            if (price < 18) {
                message.putUserProperty("region", price % 3 == 0 ? "north" : "south");
            }
            stand.producer().send(message);
        }
    }

    private static void sql(Stand stand) throws Exception {
        String topic = stand.topic(2);
        sendPriced(stand, topic);
        Queue<MessageExt> seen = consumed(stand, topic, MessageSelector.bySql(
            "(price BETWEEN 4 AND 9 AND region = 'north') OR region IS NULL"
                + " OR (TAGS IN ('odd') AND price > 16)"));
        awaitOnly(seen, new TreeSet<>(Set.of(
            "price-06", "price-09", "price-17", "price-18", "price-19")));
        stand.count("sent", 20);
        stand.count("seen", seen.size());
    }

    private static void sqlPull(Stand stand) throws Exception {
        String topic = stand.topic(1);
        sendPriced(stand, topic);
        DefaultLitePullConsumer consumer = stand.litePuller(stand.group());
        consumer.subscribe(topic, MessageSelector.bySql("price >= 17"));
        consumer.start();
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        Stand.await("three messages", () -> {
            seen.addAll(consumer.poll(100));
            return seen.size() >= 3;
        });
        awaitOnly(seen, new TreeSet<>(Set.of("price-17", "price-18", "price-19")));
        stand.count("seen", seen.size());
    }

    private static void sqlRefused(Stand stand) throws Exception {
        String topic = stand.topic(1);
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, MessageSelector.bySql("price > > 3"));
        consumer.registerMessageListener(Pushing.keeping(new ConcurrentLinkedQueue<>()));
        try {
            consumer.start();
            throw new AssertionError("the server took an expression that is none");
        } catch (MQClientException refused) {
            Stand.same(ResponseCode.SUBSCRIPTION_PARSE_FAILED, refused.getResponseCode(), "code");
        }
        stand.count("refused", 1);
    }
}
