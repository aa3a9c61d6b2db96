import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that a consumer could not do, and where they end. */
final class Retries {
    private Retries() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("retry", Retries::retry);
        all.put("dead-letter", Retries::deadLetter);
        all.put("orderly-dead-letter", Retries::orderlyDeadLetter);
        all.put("send-back", Retries::sendBack);
    }

    private static SendResult sendOne(Stand stand, String topic) throws Exception {
        Message message = new Message(topic, "a-tag", "a-key", "again".getBytes());
        message.putUserProperty("color", "red");
        return stand.producer().send(message);
    }

    /** Later, null and an exception all mean: once more. */
    private static void retry(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "a-tag");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            seen.add(message);
            switch (message.getReconsumeTimes()) {
                case 0:
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                case 1:
                    throw new IllegalStateException("on purpose");
                case 2:
                    return null;
                default:
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        consumer.start();
        SendResult sent = sendOne(stand, topic);
        Stand.awaitSize("attempts", seen, 4);
        List<MessageExt> attempts = new ArrayList<>(seen);
        for (int number = 0; number < 4; number++) {
            MessageExt one = attempts.get(number);
            Stand.same(number, one.getReconsumeTimes(), "attempts before");
            Stand.same(topic, one.getTopic(), "topic as the listener sees it");
            Stand.same("again", Stand.body(one), "body");
            Stand.same("a-tag", one.getTags(), "tag");
            Stand.same("a-key", one.getKeys(), "keys");
            Stand.same("red", one.getUserProperty("color"), "property");
            Stand.same(sent.getMsgId(), one.getMsgId(), "unique id");
            if (number > 0) {
                Stand.same(sent.getOffsetMsgId(), MessageAccessor.getOriginMessageId(one),
                    "id of the first copy");
                Stand.same(topic, one.getProperty(MessageConst.PROPERTY_RETRY_TOPIC), "origin");
            }
        }
        stand.count("attempts", seen.size());
    }

    private static void deadLetter(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.addAll(messages);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        SendResult sent = sendOne(stand, topic);
        MessageExt dead = stand.stored(MixAll.getDLQTopic(stand.group()), 1).get(0);
        Stand.same(2, seen.size(), "attempts");
        Stand.same("again", Stand.body(dead), "body");
        Stand.same(sent.getMsgId(), dead.getMsgId(), "unique id");
        Stand.same(sent.getOffsetMsgId(), MessageAccessor.getOriginMessageId(dead), "origin id");
        Stand.same(topic, dead.getProperty(MessageConst.PROPERTY_RETRY_TOPIC), "origin topic");
        Stand.same("red", dead.getUserProperty("color"), "property");
        stand.count("attempts", seen.size());
        stand.count("dead", 1);
    }

    private static void orderlyDeadLetter(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<String> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.setMaxReconsumeTimes(2);
        consumer.setSuspendCurrentQueueTimeMillis(20);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            String body = Stand.body(messages.get(0));
            seen.add(body);
            return body.equals("body-0") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        Pushing.sendAll(stand, stand.messages(topic, 2));
        Stand.await("the second message", () -> seen.contains("body-1"));
        Stand.same(List.of("body-0", "body-0", "body-0", "body-1"), new ArrayList<>(seen),
            "attempts, in order");
        MessageExt dead = stand.stored(MixAll.getDLQTopic(stand.group()), 1).get(0);
        Stand.same("body-0", Stand.body(dead), "what is dead");
        stand.count("attempts", 3);
        stand.count("dead", 1);
    }

    /** A pull consumer gives one back by hand, at a level of its choice; -1 means: give up. */
    private static void sendBack(Stand stand) throws Exception {
        String topic = stand.topic(1);
        DefaultMQPushConsumer member = stand.consumer(); // whoever gives back is a known group
        member.subscribe(topic, "nothing");
        member.registerMessageListener(Pushing.keeping(new ConcurrentLinkedQueue<>()));
        member.start();
        sendOne(stand, topic);
        MessageExt message = stand.stored(topic, 1).get(0);
        DefaultMQPullConsumer consumer = stand.puller(stand.group());
        consumer.sendMessageBack(message, 1, "broker-a");
        consumer.sendMessageBack(message, -1, "broker-a");
        MessageExt back = stand.stored(MixAll.getRetryTopic(stand.group()), 1).get(0);
        Stand.same(1, back.getReconsumeTimes(), "attempts");
        Stand.check(back.getStoreTimestamp() - message.getStoreTimestamp() >= 1_000, "too early");
        Stand.same("again", Stand.body(back), "body");
        Stand.same("again",
            Stand.body(stand.stored(MixAll.getDLQTopic(stand.group()), 1).get(0)), "dead body");
        stand.count("back", 1);
        stand.count("dead", 1);
    }
}
