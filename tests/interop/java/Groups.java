import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.body.ConsumerConnection;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** What several members of a group do together, and what is known of them. */
final class Groups {
    private Groups() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("rebalance", Groups::rebalance);
        all.put("allocation", Groups::allocation);
        all.put("members", Groups::members);
    }

    private static DefaultMQPushConsumer member(
        Stand stand, String group, String topic, AllocateMessageQueueStrategy strategy,
        Queue<MessageExt> seen
    ) throws Exception {
        return member(stand, stand.consumer(group), topic, strategy, seen);
    }

    private static DefaultMQPushConsumer member(
        Stand stand, DefaultMQPushConsumer consumer, String topic,
        AllocateMessageQueueStrategy strategy, Queue<MessageExt> seen
    ) throws Exception {
        consumer.setAllocateMessageQueueStrategy(strategy);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(Pushing.keeping(seen));
        consumer.start();
        return consumer;
    }

    private static Set<MessageQueue> owned(DefaultMQPushConsumer consumer, String topic) {
        Set<MessageQueue> queues = new HashSet<>(consumer.getDefaultMQPushConsumerImpl()
            .getRebalanceImpl().getProcessQueueTable().keySet());
        queues.removeIf(queue -> !queue.getTopic().equals(topic));
        return queues;
    }

    private static void awaitShares(
        List<DefaultMQPushConsumer> members, String topic, List<Integer> shares
    ) throws Exception {
        Stand.await("shares " + shares, () -> {
            Set<MessageQueue> together = new HashSet<>();
            List<Integer> found = new ArrayList<>();
            for (DefaultMQPushConsumer one : members) {
                Set<MessageQueue> own = owned(one, topic);
                together.addAll(own);
                found.add(own.size());
            }
            int all = shares.stream().mapToInt(Integer::intValue).sum();
            return found.stream().sorted().toList().equals(shares) && together.size() == all;
        });
    }

    /** Members come and go, and are told so at once; no message goes astray. */
    private static void rebalance(Stand stand) throws Exception {
        String topic = stand.topic(4);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        var strategy = new AllocateMessageQueueAveragely();
        AtomicInteger notices = new AtomicInteger();
        DefaultMQPushConsumer first = stand.made(new DefaultMQPushConsumer(stand.group(),
            Stand.asked(code -> {
                if (code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED) {
                    notices.incrementAndGet();
                }
            }), strategy));
        members.add(member(stand, first, topic, strategy, seen));
        awaitShares(members, topic, List.of(4));
        int before = notices.get();
        Pushing.sendAll(stand, stand.messages(topic, 20));
        members.add(member(stand, stand.group(), topic, strategy, seen));
        awaitShares(members, topic, List.of(2, 2));
        Stand.await("a notice of the second member", () -> notices.get() > before);
        for (int more = 0; more < 3; more++) {
            members.add(member(stand, stand.group(), topic, strategy, seen));
        }
        awaitShares(members, topic, List.of(0, 1, 1, 1, 1)); // the fifth has nothing to do
        for (int number = 20; number < 40; number++) {
            stand.producer().send(Stand.message(topic, "body-" + number));
        }
        while (members.size() > 1) {
            members.remove(0).shutdown();
        }
        awaitShares(members, topic, List.of(4));
        for (int number = 40; number < 60; number++) {
            stand.producer().send(Stand.message(topic, "body-" + number));
        }
        Stand.await("every message", () -> new HashSet<>(Pushing.bodies(seen)).size() == 60);
        stand.count("members", 5);
        stand.count("seen", 60);
    }

    /** Two members divide five queues by each way that the client has. */
    private static void allocation(Stand stand) throws Exception {
        String topic = stand.topic(5);
        for (AllocateMessageQueueStrategy strategy : List.of(
            new AllocateMessageQueueAveragely(), new AllocateMessageQueueAveragelyByCircle(),
            new AllocateMessageQueueConsistentHash())) {
            String group = stand.group() + "-" + strategy.getName();
            List<DefaultMQPushConsumer> members = new ArrayList<>();
            for (int number = 0; number < 2; number++) {
                members.add(
                    member(stand, group, topic, strategy, new ConcurrentLinkedQueue<>()));
            }
            Stand.await("shares by " + strategy.getName(), () -> {
                Set<MessageQueue> first = owned(members.get(0), topic);
                Set<MessageQueue> second = owned(members.get(1), topic);
                Set<MessageQueue> together = new HashSet<>(first);
                together.addAll(second);
                return together.size() == 5 && first.size() + second.size() == 5;
            });
            members.forEach(DefaultMQPushConsumer::shutdown);
        }
        stand.count("strategies", 3);
    }

    /** Who is connected is told, and who has left is not. */
    private static void members(Stand stand) throws Exception {
        String topic = stand.topic(2);
        DefaultMQPushConsumer first = member(stand, stand.group(), topic,
            new AllocateMessageQueueAveragely(), new ConcurrentLinkedQueue<>());
        DefaultMQPushConsumer second = member(stand, stand.group(), topic,
            new AllocateMessageQueueAveragely(), new ConcurrentLinkedQueue<>());
        Set<String> wanted = Set.of(first.buildMQClientId(), second.buildMQClientId());
        Stand.await("two members", () -> ids(stand).equals(wanted));
        ConsumerConnection told = stand.admin().examineConsumerConnectionInfo(stand.group());
        Stand.same(MessageModel.CLUSTERING, told.getMessageModel(), "model");
        Stand.same(ConsumeType.CONSUME_PASSIVELY, told.getConsumeType(), "type");
        Stand.same("*", told.getSubscriptionTable().get(topic).getSubString(), "subscription");
        Stand.same(Set.of(topic, "%RETRY%" + stand.group()),
            told.getSubscriptionTable().keySet(), "topics");
        var connection = told.getConnectionSet().iterator().next();
        Stand.same("JAVA", connection.getLanguage().name(), "language");
        Stand.check(connection.getClientAddr().startsWith("127.0.0.1:"), "address");
        second.shutdown();
        Stand.await("one member", () -> ids(stand).equals(Set.of(first.buildMQClientId())));
        stand.count("members", 2);
    }

    private static Set<String> ids(Stand stand) throws Exception {
        Set<String> ids = new HashSet<>();
        try {
            stand.admin().examineConsumerConnectionInfo(stand.group()).getConnectionSet()
                .forEach(one -> ids.add(one.getClientId()));
        } catch (MQBrokerException | MQClientException notYet) {
            ids.clear(); // nobody is connected, or the group's retry topic has no route
        }
        return ids;
    }
}
