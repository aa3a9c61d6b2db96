import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** A message that is answered by a message. */
final class Replies {
    private Replies() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("request-reply", Replies::reply);
        all.put("request-unanswered", Replies::unanswered);
    }

    private static void answerAll(Stand stand, String topic) throws Exception {
        DefaultMQProducer answering = stand.started(
            new DefaultMQProducer(stand.group() + "-answering"));
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt asked : messages) {
                try {
                    byte[] body = ("answer to " + Stand.body(asked)).getBytes();
                    answering.send(MessageUtil.createReplyMessage(asked, body), 5_000);
                } catch (Exception failed) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void reply(Stand stand) throws Exception {
        String topic = stand.topic(1);
        answerAll(stand, topic);
        DefaultMQProducer asking = stand.producer();
        for (int number = 0; number < 3; number++) {
            Message answer = asking.request(Stand.message(topic, "question " + number), 15_000);
            Stand.same("answer to question " + number, Stand.body(answer), "answer");
        }
        ConcurrentLinkedQueue<String> called = new ConcurrentLinkedQueue<>();
        asking.request(Stand.message(topic, "by callback"), new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                called.add(Stand.body(answer));
            }

            @Override
            public void onException(Throwable error) {
                called.add(error.toString());
            }
        }, 15_000);
        // RocketMQ's client calls twice if the answer comes before the response to its request.
        Stand.await("the call back", () -> !called.isEmpty());
        for (String answer : called) {
            Stand.same("answer to by callback", answer, "answer");
        }
        MessageExt asked = stand.stored(topic, 4).get(0);
        Stand.check(asked.getProperty(MessageConst.PROPERTY_CORRELATION_ID) != null, "no id");
        stand.count("answers", 4);
    }

    private static void unanswered(Stand stand) throws Exception {
        String topic = stand.topic(1);
        try {
            stand.producer().request(Stand.message(topic, "anybody?"), 500);
            throw new AssertionError("somebody answered");
        } catch (RequestTimeoutException nobody) {
            stand.count("sent", stand.stored(topic, 1).size());
        }
    }
}
