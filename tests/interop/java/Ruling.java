import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.ClusterInfo;
import org.apache.rocketmq.common.protocol.body.KVTable;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;

/** What operators do through the tools' own API. */
final class Ruling {
    private Ruling() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("create-topic", Ruling::createTopic);
        all.put("topics", Ruling::topics);
        all.put("permissions", Ruling::permissions);
        all.put("groups", Ruling::groups);
        all.put("topic-figures", Ruling::topicFigures);
        all.put("broker-figures", Ruling::brokerFigures);
        all.put("key-values", Ruling::keyValues);
        all.put("producers", Ruling::producers);
        all.put("settings", Ruling::settings);
        all.put("queue-units", Ruling::queueUnits);
        all.put("consume-figures", Ruling::consumeFigures);
    }

    /** As an application may do it, without the tools. */
    private static void createTopic(Stand stand) throws Exception {
        stand.producer().createTopic("TBW102", stand.topicName(), 6);
        Stand.await("six queues", () -> {
            try {
                return stand.producer().fetchPublishMessageQueues(stand.topicName()).size() == 6;
            } catch (MQClientException notYet) {
                return false;
            }
        });
        try {
            stand.producer().createTopic("TBW102", "bad name!", 1);
            throw new AssertionError("a bad name was taken");
        } catch (MQClientException refused) {
            stand.count("queues", 6);
        }
    }

    private static void topics(Stand stand) throws Exception {
        TopicConfig config = new TopicConfig(stand.topicName(), 3, 2, 6);
        stand.admin().createAndUpdateTopicConfig(stand.broker(), config);
        Stand.await("its route", () ->
            stand.admin().fetchAllTopicList().getTopicList().contains(stand.topicName()));
        TopicRouteData route = stand.admin().examineTopicRouteInfo(stand.topicName());
        Stand.same(3, route.getQueueDatas().get(0).getReadQueueNums(), "read queues");
        Stand.same(2, route.getQueueDatas().get(0).getWriteQueueNums(), "write queues");
        Stand.same(stand.broker(), route.getBrokerDatas().get(0).selectBrokerAddr(), "address");
        TopicConfig told =
            stand.admin().examineTopicConfig(stand.broker(), stand.topicName());
        Stand.same(3, told.getReadQueueNums(), "read queues at the broker");
        Stand.check(stand.admin().fetchTopicsByCLuster("DefaultCluster").getTopicList()
            .contains(stand.topicName()), "not a topic of the cluster");
        Stand.check(stand.admin().getAllTopicConfig(stand.broker(), 5_000)
            .getTopicConfigTable().containsKey(stand.topicName()), "not in the broker's table");
        stand.admin().deleteTopicInBroker(Set.of(stand.broker()), stand.topicName());
        stand.admin().deleteTopicInNameServer(
            Set.of(stand.address), stand.topicName(), "DefaultCluster");
        Stand.await("its end", () -> !stand.admin().fetchAllTopicList().getTopicList()
            .contains(stand.topicName()));
        stand.count("queues", 3);
    }

    private static void permissions(Stand stand) throws Exception {
        String topic = stand.topic(1);
        stand.producer().send(Stand.message(topic, "while it may"));
        stand.admin().createAndUpdateTopicConfig(stand.broker(), new TopicConfig(topic, 1, 1, 4));
        Stand.await("a route without a queue to write", () -> perm(stand, topic) == 4);
        DefaultMQProducer another =
            stand.started(new DefaultMQProducer(stand.group())); // who knows no older route
        try {
            another.send(Stand.message(topic, "no longer"));
            throw new AssertionError("a topic that is for reading only was written");
        } catch (MQClientException refused) {
            Stand.same(1, stand.stored(topic).size(), "messages to read");
        }
        stand.admin().createAndUpdateTopicConfig(stand.broker(), new TopicConfig(topic, 1, 1, 2));
        try {
            stand.puller(stand.group()).pull(
                new MessageQueue(topic, "broker-a", 0), "*", 0, 32);
            throw new AssertionError("a topic that is for writing only was read");
        } catch (MQBrokerException refused) {
            Stand.same(16, refused.getResponseCode(), "code");
        }
        stand.admin().createAndUpdateTopicConfig(stand.broker(), new TopicConfig(topic, 1, 1, 6));
        Stand.await("a route for both", () -> perm(stand, topic) == 6);
        another.send(Stand.message(topic, "again"));
        stand.count("stored", stand.stored(topic, 2).size());
    }

    private static int perm(Stand stand, String topic) throws Exception {
        return stand.admin().examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm();
    }

    private static void groups(Stand stand) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(stand.group());
        config.setRetryMaxTimes(5);
        config.setConsumeBroadcastEnable(false);
        stand.admin().createAndUpdateSubscriptionGroupConfig(stand.broker(), config);
        SubscriptionGroupConfig told =
            stand.admin().examineSubscriptionGroupConfig(stand.broker(), stand.group());
        Stand.same(5, told.getRetryMaxTimes(), "retries");
        Stand.same(false, told.isConsumeBroadcastEnable(), "broadcasting");
        Stand.check(stand.admin().getUserSubscriptionGroup(stand.broker(), 5_000)
            .getSubscriptionGroupTable().containsKey(stand.group()), "not in the table");
        stand.admin().deleteSubscriptionGroup(stand.broker(), stand.group(), true);
        Stand.check(!stand.admin().getAllSubscriptionGroup(stand.broker(), 5_000)
            .getSubscriptionGroupTable().containsKey(stand.group()), "still in the table");
        stand.count("groups", 1);
    }

    private static void topicFigures(Stand stand) throws Exception {
        String topic = stand.topic(2);
        Pushing.sendAll(stand, stand.messages(topic, 6));
        stand.stored(topic, 6);
        var table = stand.admin().examineTopicStats(topic).getOffsetTable();
        Stand.same(2, table.size(), "queues");
        Stand.same(6L, table.values().stream().mapToLong(one -> one.getMaxOffset()).sum(),
            "messages");
        Stand.check(table.values().stream().allMatch(one ->
            one.getLastUpdateTimestamp() > System.currentTimeMillis() - 60_000), "times");
        stand.count("queues", 2);
    }

    private static void brokerFigures(Stand stand) throws Exception {
        ClusterInfo cluster = stand.admin().examineBrokerClusterInfo();
        Stand.same(Set.of("broker-a"), cluster.getBrokerAddrTable().keySet(), "brokers");
        Stand.same(Set.of("broker-a"), cluster.getClusterAddrTable().get("DefaultCluster"),
            "brokers of the cluster");
        KVTable figures = runtimeFigures(stand);
        for (String wanted : List.of("putTps", "getTransferedTps", "bootTimestamp", "runtime",
            "brokerVersionDesc", "commitLogMaxOffset", "commitLogMinOffset", "commitLogDiskRatio",
            "msgPutTotalTodayNow", "msgGetTotalTodayNow", "sendThreadPoolQueueSize",
            "msgPutTotalTodayMorning", "msgGetTotalYesterdayMorning", "getFoundTps", "getMissTps",
            "getTotalTps", "earliestMessageTimeStamp", "commitLogDirCapacity",
            "putMessageAverageSize", "queryThreadPoolQueueSize")) {
            Stand.check(figures.getTable().containsKey(wanted), wanted + " is missing");
        }
        Properties settings = stand.admin().getBrokerConfig(stand.broker());
        Stand.same("broker-a", settings.getProperty("brokerName"), "brokerName");
        Stand.same("true", settings.getProperty("enablePropertyFilter"), "enablePropertyFilter");
        stand.count("figures", 20);
    }

    /** RocketMQ's broker fails until it has sampled its rates once, a second after its start. */
    private static KVTable runtimeFigures(Stand stand) throws Exception {
        KVTable[] figures = new KVTable[1];
        Stand.await("the broker's figures", () -> {
            try {
                figures[0] = stand.admin().fetchBrokerRuntimeStats(stand.broker());
            } catch (MQBrokerException notYet) {
                return false;
            }
            return true;
        });
        return figures[0];
    }

    private static void keyValues(Stand stand) throws Exception {
        stand.admin().createAndUpdateKvConfig("INTEROP", stand.name, "a value; with = signs");
        Stand.same("a value; with = signs",
            stand.admin().getKVConfig("INTEROP", stand.name), "value");
        Stand.same(1, stand.admin().getKVListByNamespace("INTEROP").getTable().size(), "values");
        stand.admin().deleteKvConfig("INTEROP", stand.name);
        try {
            stand.admin().getKVConfig("INTEROP", stand.name);
            throw new AssertionError("a deleted value was found");
        } catch (MQClientException nothing) {
            stand.count("values", 1);
        }
    }

    private static void settings(Stand stand) throws Exception {
        Properties change = new Properties();
        change.setProperty("fileReservedTime", "71");
        stand.admin().updateBrokerConfig(stand.broker(), change);
        Stand.same("71", stand.admin().getBrokerConfig(stand.broker())
            .getProperty("fileReservedTime"), "a setting of the broker");
        var servers = stand.admin().getNameServerConfig(List.of(stand.address));
        Stand.check(servers.get(stand.address).containsKey("listenPort"), "no settings");
        stand.count("settings", 2);
    }

    private static void queueUnits(Stand stand) throws Exception {
        String topic = stand.topic(1);
        for (String tag : List.of("red", "green", "red")) {
            Message message = Stand.message(topic, "x");
            message.setTags(tag);
            stand.producer().send(message);
        }
        List<MessageExt> stored = stand.stored(topic, 3);
        var found = stand.admin().queryConsumeQueue(
            stand.broker(), topic, 0, 1, 2, null).getQueueData();
        Stand.same(2, found.size(), "units");
        for (int number = 0; number < 2; number++) {
            MessageExt message = stored.get(number + 1);
            Stand.same(message.getCommitLogOffset(), found.get(number).getPhysicOffset(), "place");
            Stand.same(message.getStoreSize(), found.get(number).getPhysicSize(), "size");
            Stand.same((long) message.getTags().hashCode(), found.get(number).getTagsCode(),
                "hash of the tag");
        }
        stand.count("units", 2);
    }

    /** How far a live group is, by each way to ask. */
    private static void consumeFigures(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.consumer();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(Pushing.keeping(seen));
        consumer.start();
        Pushing.sendAll(stand, stand.messages(topic, 4));
        Stand.awaitSize("messages", seen, 4);
        Looking.awaitCommitted(stand, consumer, topic, 4);
        MessageQueue queue = new MessageQueue(topic, "broker-a", 0);
        var figures = stand.admin().examineConsumeStats(stand.group(), topic).getOffsetTable();
        Stand.same(4L, figures.get(queue).getBrokerOffset(), "the broker's offset");
        Stand.check(figures.get(queue).getLastTimestamp() > 0, "time of the last one consumed");
        var byMember = stand.admin().getConsumeStatus(topic, stand.group(), "");
        Stand.same(4L, byMember.get(consumer.buildMQClientId()).get(queue), "by member");
        var span = stand.admin().queryConsumeTimeSpan(topic, stand.group()).get(0);
        Stand.same(queue, span.getMessageQueue(), "queue of the span");
        Stand.check(span.getMinTimeStamp() <= span.getMaxTimeStamp(), "span");
        var all = stand.admin().fetchConsumeStatsInBroker(stand.broker(), false, 10_000);
        Stand.check(all.getConsumeStatsList().stream().anyMatch(
            one -> one.containsKey(stand.group())), "not among all groups");
        stand.count("offset", 4);
    }

    private static void producers(Stand stand) throws Exception {
        String topic = stand.topic(1);
        stand.producer().send(Stand.message(topic, "x"));
        String group = stand.producer().getProducerGroup();
        String wanted = stand.producer().buildMQClientId();
        Stand.await("the producer", () -> {
            try {
                return stand.admin().examineProducerConnectionInfo(group, topic)
                    .getConnectionSet().stream()
                    .anyMatch(one -> one.getClientId().equals(wanted));
            } catch (MQBrokerException notYet) {
                return false;
            }
        });
        stand.count("producers", 1);
    }
}
