import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.topic.TopicValidator;

/** The life of a message as its clients write it down, in a topic of the server. */
final class Tracing {
    private Tracing() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("trace", Tracing::trace);
        all.put("trace-own-topic", Tracing::ownTopic);
    }

    private static void trace(Stand stand) throws Exception {
        lived(stand, TopicValidator.RMQ_SYS_TRACE_TOPIC, null);
    }

    private static void ownTopic(Stand stand) throws Exception {
        String own = stand.topic(stand.topicName() + "-lives", 1);
        lived(stand, own, own);
    }

    private static void lived(Stand stand, String traceTopic, String named) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.told(
            new DefaultMQPushConsumer(stand.group(), true, named));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(Pushing.keeping(seen));
        DefaultMQProducer producer =
            new DefaultMQProducer(stand.group() + "-traced", true, named);
        stand.started(producer);
        Message message = new Message(topic, "a-tag", "a-key", "traced".getBytes());
        SendResult sent = producer.send(message);
        consumer.start();
        try {
            Stand.awaitSize("the message", seen, 1);
            List<TraceContext> told = new ArrayList<>();
            Stand.await("three entries about it", () -> {
                told.clear();
                told.addAll(about(stand, traceTopic, sent.getMsgId()));
                return told.size() >= 3;
            });
            judge(stand, topic, sent, told);
            // the message's id is a key of the entry, so that it can be asked for
            long now = System.currentTimeMillis();
            Stand.await("the entries by key", () -> found(stand, traceTopic, sent, now) > 0);
        } finally {
            consumer.shutdown();
        }
        stand.count("entries", 3);
    }

    private static int found(Stand stand, String topic, SendResult sent, long now)
        throws Exception {
        try {
            return stand.admin().queryMessage(
                topic, sent.getMsgId(), 32, now - 60_000, now + 60_000).getMessageList().size();
        } catch (org.apache.rocketmq.client.exception.MQClientException nothingYet) {
            return 0;
        }
    }

    private static List<TraceContext> about(Stand stand, String traceTopic, String id)
        throws Exception {
        List<TraceContext> found = new ArrayList<>();
        for (MessageExt entry : stand.stored(traceTopic)) {
            if (entry.getKeys() != null && entry.getKeys().contains(id)) {
                String text = new String(entry.getBody(), StandardCharsets.UTF_8);
                TraceDataEncoder.decoderFromTraceDataString(text).stream()
                    .filter(one -> one.getTraceBeans().get(0).getMsgId().equals(id))
                    .forEach(found::add);
            }
        }
        return found;
    }

    private static void judge(
        Stand stand, String topic, SendResult sent, List<TraceContext> told
    ) {
        Stand.same(List.of(TraceType.Pub, TraceType.SubBefore, TraceType.SubAfter),
            told.stream().map(TraceContext::getTraceType).sorted().toList(), "types");
        for (TraceContext one : told) {
            TraceBean bean = one.getTraceBeans().get(0);
            if (one.getTraceType() == TraceType.Pub) {
                Stand.same(topic, bean.getTopic(), "topic");
                Stand.same("a-tag", bean.getTags(), "tag");
                Stand.same("a-key", bean.getKeys(), "keys");
                Stand.same(sent.getOffsetMsgId(), bean.getOffsetMsgId(), "offset id");
                Stand.same(stand.group() + "-traced", one.getGroupName(), "producer group");
                Stand.same("DefaultRegion", one.getRegionId(), "region");
            } else if (one.getTraceType() == TraceType.SubBefore) {
                Stand.same(stand.group(), one.getGroupName(), "consumer group");
            }
            Stand.check(one.isSuccess(), "it says that it failed");
        }
    }
}
