import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * A consumer that brings its filter along, as RocketMQ had it until its filter servers were removed.
 * The client still does it; what it uploads is a source, and it does not look what kind of.
 *
 * <p>It is run by name only: RocketMQ's servers have nothing to run it.
 */
final class ClassFilters {
    private static final String SOURCE = """
        def match(message, context):
            return int(message.body) % 5 == 0 or message.properties.get("keep") == "yes"
        """;
    private static final String NAME = "org.example.EveryFifth";
    private static final int SENT = 40;
    private static final String KEPT = "7";

    private ClassFilters() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("class-filter", ClassFilters::filtered);
    }

    private static void filtered(Stand stand) throws Exception {
        String topic = stand.topic(2);
        Set<String> wanted = new TreeSet<>();
        for (int number = 0; number < SENT; number++) {
            Message message = Stand.message(topic, "" + number);
            if (message.getBody().length == 1 && Stand.body(message).equals(KEPT)) {
                message.putUserProperty("keep", "yes");
            }
            if (number % 5 == 0 || ("" + number).equals(KEPT)) {
                wanted.add("" + number);
            }
            stand.producer().send(message);
        }
        TopicRouteData route = stand.admin().examineTopicRouteInfo(topic);
        Set<String> servers = new TreeSet<>();
        route.getFilterServerTable().values().forEach(servers::addAll);
        Stand.check(!servers.isEmpty(), "the route names no filter server");
        Map<Integer, Set<String>> asked = new ConcurrentHashMap<>();
        Queue<MessageExt> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = stand.made(
            new DefaultMQPushConsumer(null, stand.group(), noting(asked)));
        subscribe(consumer, topic);
        consumer.registerMessageListener(Pushing.keeping(seen));
        consumer.start();
        Stand.awaitSize("messages that pass", seen, wanted.size());
        Stand.same(wanted, new TreeSet<>(Pushing.bodies(seen)), "what passed");
        Looking.awaitCommitted(stand, consumer, topic, SENT);
        Stand.same(wanted.size(), seen.size(), "messages that passed in the end");
        Stand.same(servers, asked.get(RequestCode.REGISTER_MESSAGE_FILTER_CLASS), "uploaded to");
        Stand.check(servers.containsAll(asked.get(RequestCode.PULL_MESSAGE)),
            "pulled from " + asked.get(RequestCode.PULL_MESSAGE) + ", not from " + servers);
        stand.count("sent", SENT);
        stand.count("seen", seen.size());
    }

    @SuppressWarnings("deprecation")
    private static void subscribe(DefaultMQPushConsumer consumer, String topic) throws Exception {
        consumer.subscribe(topic, NAME, SOURCE);
    }

    /** What is given back has a topic of its own, which nobody filters. */
    private static boolean isOther(RemotingCommand request) {
        return request.readCustomHeader() instanceof PullMessageRequestHeader pull
            && pull.getTopic().startsWith(MixAll.RETRY_GROUP_TOPIC_PREFIX);
    }

    private static RPCHook noting(Map<Integer, Set<String>> asked) {
        return new RPCHook() {
            @Override
            public void doBeforeRequest(String address, RemotingCommand request) {
                if (isOther(request)) {
                    return;
                }
                asked.computeIfAbsent(request.getCode(), code -> ConcurrentHashMap.newKeySet())
                    .add(String.valueOf(address)); // none is for any name server
            }

            @Override
            public void doAfterResponse(
                String address, RemotingCommand request, RemotingCommand response
            ) {
                // requests are what is told of
            }
        };
    }
}
