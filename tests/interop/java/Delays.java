import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Messages that are to come later. The server's levels are 1s 2s 1s …, see the settings of the
 * test's servers.
 */
final class Delays {
    private static final long[] LEVEL_MS = {0, 1_000, 2_000};

    private Delays() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("delay", Delays::delay);
        all.put("delay-batch-refused", Delays::batchRefused);
    }

    private static void delay(Stand stand) throws Exception {
        String topic = stand.topic(2);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        Map<String, Long> arrived = new HashMap<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "wanted");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (arrived) {
                messages.forEach(one -> arrived.put(Stand.body(one), System.currentTimeMillis()));
            }
            seen.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Map<String, SendResult> sent = new HashMap<>();
        for (int level = 0; level <= 2; level++) {
            for (int number = 0; number < 3; number++) {
                Message message = new Message(topic, "wanted", "key-" + level,
                    (level + "/" + number).getBytes());
                message.setDelayTimeLevel(level);
                SendResult result = stand.producer().send(message);
                Stand.same(SendStatus.SEND_OK, result.getSendStatus(), "status");
                sent.put(Stand.body(message), result);
            }
        }
        Stand.awaitSize("messages", seen, 9);
        for (MessageExt message : seen) {
            int level = Integer.parseInt(Stand.body(message).substring(0, 1));
            long after = arrived.get(Stand.body(message)) - message.getBornTimestamp();
            Stand.check(after >= LEVEL_MS[level], Stand.body(message) + " after " + after + " ms");
            SendResult result = sent.get(Stand.body(message));
            Stand.same(result.getMsgId(), message.getMsgId(), "unique id");
            Stand.same(result.getMessageQueue().getQueueId(), message.getQueueId(), "queue");
            Stand.same(topic, message.getTopic(), "topic");
            Stand.same("wanted", message.getTags(), "tag");
            Stand.same("key-" + level, message.getKeys(), "keys");
        }
        stand.count("seen", seen.size());
    }

    private static void batchRefused(Stand stand) throws Exception {
        List<Message> messages = new ArrayList<>(stand.messages(stand.topic(1), 2));
        messages.get(1).setDelayTimeLevel(1);
        try {
            stand.producer().send(messages);
            throw new AssertionError("a batch with a delayed message was taken");
        } catch (org.apache.rocketmq.client.exception.MQClientException refused) {
            stand.count("refused", 1); // by the client itself
        }
    }
}
