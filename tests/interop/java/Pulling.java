import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask for themselves: the old pull consumer and the lite one. */
final class Pulling {
    private Pulling() {
    }

    static void addTo(Map<String, Interop.Scenario> all) {
        all.put("pull", Pulling::pull);
        all.put("pull-waiting", Pulling::waiting);
        all.put("pull-offsets", Pulling::offsets);
        all.put("lite-subscribe", Pulling::liteSubscribe);
        all.put("lite-assign", Pulling::liteAssign);
        all.put("lite-commit", Pulling::liteCommit);
    }

    private static void pull(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Pushing.sendAll(stand, stand.messages(topic, 10));
        stand.stored(topic, 10);
        DefaultMQPullConsumer consumer = stand.puller(stand.group());
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        PullResult found = consumer.pull(queue, "*", 0, 4);
        Stand.same(PullStatus.FOUND, found.getPullStatus(), "status");
        Stand.same(4, found.getMsgFoundList().size(), "messages");
        Stand.same(4L, found.getNextBeginOffset(), "next offset");
        Stand.same(0L, found.getMinOffset(), "min offset");
        Stand.same(10L, found.getMaxOffset(), "max offset");
        Stand.same(6, consumer.pull(queue, "*", 4, 32).getMsgFoundList().size(), "the rest");
        PullResult nothing = consumer.pull(queue, "*", 10, 32);
        Stand.same(PullStatus.NO_NEW_MSG, nothing.getPullStatus(), "status at the end");
        PullResult beyond = consumer.pull(queue, "*", 1_000, 32);
        Stand.same(PullStatus.OFFSET_ILLEGAL, beyond.getPullStatus(), "status beyond the end");
        Stand.same(10L, beyond.getNextBeginOffset(), "where to go on");
        PullResult otherTag = consumer.pull(queue, "no-such-tag", 0, 32);
        Stand.same(PullStatus.NO_MATCHED_MSG, otherTag.getPullStatus(), "status for a tag");
        Stand.same(10L, otherTag.getNextBeginOffset(), "next offset for a tag");
        stand.count("pulled", 10);
    }

    private static void waiting(Stand stand) throws Exception {
        String topic = stand.topic(1);
        DefaultMQPullConsumer consumer = stand.puller(stand.group());
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        ConcurrentLinkedQueue<PullResult> done = new ConcurrentLinkedQueue<>();
        consumer.pullBlockIfNotFound(queue, "*", 0, 32, new PullCallback() {
            @Override
            public void onSuccess(PullResult result) {
                done.add(result);
            }

            @Override
            public void onException(Throwable error) {
                done.add(new PullResult(PullStatus.OFFSET_ILLEGAL, 0, 0, 0, null));
            }
        });
        stand.producer().send(Stand.message(topic, "awaited"));
        Stand.awaitSize("an answer", done, 1);
        Stand.same(PullStatus.FOUND, done.peek().getPullStatus(), "status");
        Stand.same("awaited", Stand.body(done.peek().getMsgFoundList().get(0)), "body");
        stand.count("pulled", 1);
    }

    private static void offsets(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Pushing.sendAll(stand, stand.messages(topic, 10));
        DefaultMQPullConsumer consumer = stand.puller(stand.group());
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        Stand.same(0L, consumer.fetchConsumeOffset(queue, true), "offset of a new group");
        consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, 7, false);
        Stand.same(7L, consumer.fetchConsumeOffset(queue, true), "offset");
        DefaultMQPullConsumer second = stand.puller(stand.group());
        Stand.same(7L, second.fetchConsumeOffset(queue, true), "offset for another member");
        Stand.same(0L, stand.puller(stand.group() + "-other").fetchConsumeOffset(queue, true),
            "offset of another group");
        stand.count("offset", 7);
    }

    private static List<MessageExt> polled(DefaultLitePullConsumer consumer, int count)
        throws Exception {
        List<MessageExt> found = new ArrayList<>();
        Stand.await(count + " polled messages", () -> {
            found.addAll(consumer.poll(100));
            return found.size() >= count;
        });
        Stand.same(count, found.size(), "polled messages");
        return found;
    }

    private static Set<String> bodies(List<MessageExt> messages) {
        return messages.stream().map(Stand::body).collect(Collectors.toSet());
    }

    private static void liteSubscribe(Stand stand) throws Exception {
        String topic = stand.topic(4);
        Pushing.sendAll(stand, stand.messages(topic, 40));
        DefaultLitePullConsumer first = stand.litePuller(stand.group());
        first.subscribe(topic, "*");
        first.start();
        Stand.same(40, bodies(polled(first, 40)).size(), "bodies");
        DefaultLitePullConsumer second = stand.litePuller(stand.group());
        second.subscribe(topic, "*");
        second.start();
        Stand.await("a fair division", () ->
            first.assignment().size() == 2 && second.assignment().size() == 2);
        stand.count("polled", 40);
    }

    private static void liteAssign(Stand stand) throws Exception {
        String topic = stand.topic(2);
        for (MessageQueue queue : stand.producer().fetchPublishMessageQueues(topic)) {
            for (int number = 0; number < 10; number++) {
                stand.producer().send(Stand.message(topic, "" + number), queue);
            }
        }
        stand.stored(topic, 20);
        DefaultLitePullConsumer consumer = stand.litePuller(stand.group());
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        Stand.same(2, queues.size(), "queues");
        MessageQueue one = queues.iterator().next();
        consumer.assign(List.of(one));
        // The client drops what it has at a seek, but not what a pull under way still brings.
        Stand.same(10, polled(consumer, 10).size(), "from the group's offset");
        consumer.seek(one, 6);
        Stand.same(Set.of("6", "7", "8", "9"), bodies(polled(consumer, 4)), "after seek");
        consumer.seekToBegin(one);
        Stand.same(10, polled(consumer, 10).size(), "from the beginning");
        consumer.pause(List.of(one));
        stand.producer().send(Stand.message(topic, "paused"), one);
        consumer.resume(List.of(one)); // a pull under way may have brought it meanwhile
        Stand.same(Set.of("paused"), bodies(polled(consumer, 1)), "after resuming");
        consumer.seekToEnd(one);
        stand.producer().send(Stand.message(topic, "last"), one);
        Stand.same(Set.of("last"), bodies(polled(consumer, 1)), "from the end");
        Stand.same(0L, consumer.offsetForTimestamp(one, 1_000L), "offset of long ago");
        stand.count("polled", 26);
    }

    private static void liteCommit(Stand stand) throws Exception {
        String topic = stand.topic(1);
        Pushing.sendAll(stand, stand.messages(topic, 10));
        DefaultLitePullConsumer consumer = stand.litePuller(stand.group());
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(4);
        consumer.subscribe(topic, "*");
        consumer.start();
        List<MessageExt> found = new ArrayList<>();
        Stand.await("six messages", () -> {
            found.addAll(consumer.poll(100));
            return found.size() >= 6;
        });
        MessageQueue queue = consumer.assignment().iterator().next();
        long wanted = found.size();
        consumer.commitSync(Map.of(queue, wanted), true);
        Stand.await("the commit", () -> {
            try {
                return stand.admin().examineConsumeStats(stand.group(), topic).getOffsetTable()
                    .get(queue).getConsumerOffset() == wanted;
            } catch (MQClientException notYet) {
                return false; // the route to the group's retry topic may be on its way
            }
        });
        consumer.shutdown();
        DefaultLitePullConsumer next = stand.litePuller(stand.group());
        next.subscribe(topic, "*");
        next.start();
        List<MessageExt> rest = polled(next, 10 - (int) wanted);
        Set<String> together = new HashSet<>(bodies(found));
        together.addAll(bodies(rest));
        Stand.same(10, together.size(), "bodies of both members");
        stand.count("polled", 10);
    }
}
