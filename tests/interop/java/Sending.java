import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** What a producer can do. */
final class Sending {
    private static final int MEGABYTE = 1 << 20;

    private Sending() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("sync", Sending::sync);
        all.put("async", Sending::async);
        all.put("oneway", Sending::oneway);
        all.put("batch", Sending::batch);
        all.put("selector", Sending::selector);
        all.put("to-a-queue", Sending::toQueue);
        all.put("vip-port", Sending::vipPort);
        all.put("created-by-sending", Sending::createdBySending);
        all.put("compression", Sending::compression);
        all.put("properties", Sending::properties);
        all.put("too-large", Sending::tooLarge);
        all.put("send-hook", Sending::sendHook);
        all.put("namespace", Sending::namespace);
    }

    private static Set<String> bodies(List<? extends Message> messages) {
        return messages.stream().map(Stand::body).collect(Collectors.toCollection(TreeSet::new));
    }

    private static void sync(Stand stand) throws Exception {
        String topic = stand.topic(4);
        List<Message> sent = stand.messages(topic, 40);
        Set<String> places = new HashSet<>();
        Map<Integer, Integer> byQueue = new HashMap<>();
        for (Message message : sent) {
            SendResult result = stand.producer().send(message);
            Stand.same(SendStatus.SEND_OK, result.getSendStatus(), "status");
            int queue = result.getMessageQueue().getQueueId();
            places.add(queue + "/" + result.getQueueOffset());
            byQueue.merge(queue, 1, Integer::sum);
            Stand.check(MessageDecoder.decodeMessageId(result.getOffsetMsgId()) != null, "id");
        }
        Stand.same(40, places.size(), "places");
        Stand.same(Map.of(0, 10, 1, 10, 2, 10, 3, 10), byQueue, "messages by queue");
        List<MessageExt> stored = stand.stored(topic, 40);
        Stand.same(bodies(sent), bodies(stored), "bodies");
        stand.count("sent", 40);
        stand.count("stored", stored.size());
    }

    private static void async(Stand stand) throws Exception {
        String topic = stand.topic(4);
        List<Message> sent = stand.messages(topic, 50);
        ConcurrentLinkedQueue<String> done = new ConcurrentLinkedQueue<>();
        ConcurrentLinkedQueue<Throwable> failed = new ConcurrentLinkedQueue<>();
        for (Message message : sent) {
            stand.producer().send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done.add(result.getMsgId());
                }

                @Override
                public void onException(Throwable error) {
                    failed.add(error);
                }
            });
        }
        Stand.await("callbacks", () -> done.size() + failed.size() == 50);
        Stand.same(List.of(), new ArrayList<>(failed), "failures");
        List<MessageExt> stored = stand.stored(topic, 50);
        Stand.same(new HashSet<>(done),
            stored.stream().map(MessageExt::getMsgId).collect(Collectors.toSet()), "unique ids");
        stand.count("sent", 50);
        stand.count("stored", stored.size());
    }

    private static void oneway(Stand stand) throws Exception {
        String topic = stand.topic(2);
        List<Message> sent = stand.messages(topic, 20);
        for (Message message : sent) {
            stand.producer().sendOneway(message);
        }
        List<MessageExt> stored = stand.stored(topic, 20);
        Stand.same(bodies(sent), bodies(stored), "bodies");
        stand.count("stored", stored.size());
    }

    private static void batch(Stand stand) throws Exception {
        String topic = stand.topic(2);
        List<Message> sent = stand.messages(topic, 10);
        sent.forEach(message -> message.setTags("B"));
        SendResult result = stand.producer().send(sent);
        Stand.same(SendStatus.SEND_OK, result.getSendStatus(), "status");
        List<MessageExt> stored = stand.stored(topic, 10);
        Stand.same(Arrays.asList(result.getMsgId().split(",")),
            stored.stream().map(MessageExt::getMsgId).toList(), "unique ids, in order");
        Stand.same(Arrays.asList(result.getOffsetMsgId().split(",")),
            stored.stream().map(one -> MessageDecoder.createMessageId(
                one.getStoreHost(), one.getCommitLogOffset())).toList(),
            "offset ids, in order");
        Stand.same(sent.stream().map(Stand::body).toList(),
            stored.stream().map(Stand::body).toList(), "bodies, in order");
        Stand.same(1L, stored.stream().map(MessageExt::getQueueId).distinct().count(), "queues");
        stand.count("stored", stored.size());
    }

    private static void selector(Stand stand) throws Exception {
        String topic = stand.topic(4);
        Map<String, Set<Integer>> queues = new HashMap<>();
        for (int number = 0; number < 40; number++) {
            String key = "order-" + number % 5;
            SendResult result = stand.producer().send(
                Stand.message(topic, key + "/" + number), new SelectMessageQueueByHash(), key);
            queues.computeIfAbsent(key, none -> new HashSet<>())
                .add(result.getMessageQueue().getQueueId());
        }
        queues.forEach((key, where) -> Stand.same(
            Set.of(Math.abs(key.hashCode() % 4)), where, "queues of " + key));
        stand.count("stored", stand.stored(topic, 40).size());
    }

    private static void toQueue(Stand stand) throws Exception {
        String topic = stand.topic(3);
        for (MessageQueue queue : stand.producer().fetchPublishMessageQueues(topic)) {
            for (int number = 0; number < 4; number++) {
                SendResult result = stand.producer().send(Stand.message(topic, "x"), queue);
                Stand.same(queue, result.getMessageQueue(), "queue");
                Stand.same((long) number, result.getQueueOffset(), "offset");
            }
        }
        stand.count("stored", stand.stored(topic, 12).size());
    }

    private static void vipPort(Stand stand) throws Exception {
        String topic = stand.topic(1);
        DefaultMQProducer producer = new DefaultMQProducer(stand.group());
        producer.setVipChannelEnabled(true);
        Stand.same(SendStatus.SEND_OK,
            stand.started(producer).send(Stand.message(topic, "x")).getSendStatus(), "status");
        stand.count("stored", stand.stored(topic, 1).size());
    }

    private static void createdBySending(Stand stand) throws Exception {
        String topic = stand.topicName();
        SendResult result = stand.producer().send(Stand.message(topic, "x"));
        Stand.same(SendStatus.SEND_OK, result.getSendStatus(), "status");
        Stand.await("a route", () -> {
            try {
                return stand.producer().fetchPublishMessageQueues(topic).size() == 4;
            } catch (org.apache.rocketmq.client.exception.MQClientException notYet) {
                return false;
            }
        });
        stand.count("queues", 4);
        stand.count("stored", stand.stored(topic, 1).size());
    }

    private static void compression(Stand stand) throws Exception {
        String topic = stand.topic(1);
        byte[] large = new byte[MEGABYTE];
        for (int place = 0; place < large.length; place++) {
            large[place] = (byte) (place / 1000);
        }
        stand.producer().send(new Message(topic, large));
        MessageExt stored = stand.stored(topic, 1).get(0);
        Stand.check(Arrays.equals(large, stored.getBody()), "the body came back otherwise");
        Stand.check(stored.getStoreSize() < large.length / 10,
            "it was stored in " + stored.getStoreSize() + " bytes");
        Stand.check((stored.getSysFlag() & MessageSysFlag.COMPRESSED_FLAG) != 0, "sysFlag");
        stand.count("body_bytes", large.length);
    }

    private static void properties(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Message message = new Message(topic, "étiquette", "ключ-1 鍵-2", "Grüße 🚀".getBytes(UTF_8));
        message.putUserProperty("città", "Zürich – 東京");
        message.setFlag(0x1234_5678);
        message.setBuyerId("buyer");
        stand.producer().send(message);
        MessageExt stored = stand.stored(topic, 1).get(0);
        Stand.same("Grüße 🚀", Stand.body(stored), "body");
        Stand.same("étiquette", stored.getTags(), "tag");
        Stand.same("ключ-1 鍵-2", stored.getKeys(), "keys");
        Stand.same("Zürich – 東京", stored.getUserProperty("città"), "property");
        Stand.same("buyer", stored.getBuyerId(), "buyer");
        Stand.same(0x1234_5678, stored.getFlag(), "flag");
        Stand.check(stored.getBornTimestamp() <= stored.getStoreTimestamp() + 1_000, "times");
        stand.count("stored", 1);
    }

    private static void tooLarge(Stand stand) throws Exception {
        String topic = stand.topic(1);
        DefaultMQProducer producer = new DefaultMQProducer(stand.group());
        producer.setMaxMessageSize(16 * MEGABYTE);
        producer.setCompressMsgBodyOverHowmuch(16 * MEGABYTE);
        stand.started(producer);
        try {
            producer.send(new Message(topic, new byte[5 * MEGABYTE]));
            throw new AssertionError("the server took 5 MiB");
        } catch (MQBrokerException refused) {
            Stand.same(ResponseCode.MESSAGE_ILLEGAL, refused.getResponseCode(), "code");
        }
        producer.send(Stand.message(topic, "the connection still works"));
        stand.count("stored", stand.stored(topic, 1).size());
    }

    private static void sendHook(Stand stand) throws Exception {
        String topic = stand.topic(1);
        DefaultMQProducer producer = new DefaultMQProducer(stand.group());
        List<String> seen = new ArrayList<>();
        producer.getDefaultMQProducerImpl().registerSendMessageHook(new SendMessageHook() {
            @Override
            public String hookName() {
                return "seen";
            }

            @Override
            public void sendMessageBefore(SendMessageContext context) {
                context.getMessage().putUserProperty("by-hook", "yes");
                seen.add("before");
            }

            @Override
            public void sendMessageAfter(SendMessageContext context) {
                seen.add("after " + context.getSendResult().getSendStatus());
            }
        });
        stand.started(producer).send(Stand.message(topic, "x"));
        Stand.same(List.of("before", "after SEND_OK"), seen, "calls");
        Stand.same("yes", stand.stored(topic, 1).get(0).getUserProperty("by-hook"), "property");
        stand.count("calls", seen.size());
    }

    private static void namespace(Stand stand) throws Exception {
        stand.topic("Space%" + stand.topicName(), 1);
        DefaultMQProducer producer = new DefaultMQProducer("Space", stand.group());
        stand.started(producer);
        SendResult result = producer.send(Stand.message(stand.topicName(), "x"));
        Stand.same(stand.topicName(), result.getMessageQueue().getTopic(), "topic, bare");
        stand.count("stored", stand.stored("Space%" + stand.topicName(), 1).size());
    }
}
