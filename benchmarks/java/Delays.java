import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that wait at the broker: how late they come, and how many a second. */
final class Delays {
    private static final long[] LEVELS_MS = {0, 1_000, 5_000, 10_000, 30_000};

    private final RocketmqDriver driver;

    Delays(RocketmqDriver driver) {
        this.driver = driver;
    }

    private static final class Run {
        final Consuming.Drain drain;
        final RocketmqDriver.LongList late = new RocketmqDriver.LongList();
        final AtomicLong sent = new AtomicLong();
        long waiting = -1;

        Run(int messages) {
            drain = new Consuming.Drain(messages);
        }

        synchronized void take(List<MessageExt> messages, long delayMicros) {
            Instant now = Instant.now();
            long micros = TimeUnit.SECONDS.toMicros(now.getEpochSecond()) + now.getNano() / 1_000;
            if (waiting < 0) {
                waiting = sent.get();
            }
            for (MessageExt message : messages) {
                // brokers count in milliseconds, so that the sent one's begin is what they promise
                long sentMicros = RocketmqDriver.stamp(message.getBody()) / 1_000 * 1_000;
                long own = micros - sentMicros - delayMicros;
                if (own < 0) {
                    drain.complaint.set("a message came " + -own + " microseconds early");
                }
                late.add(own * 1_000);
            }
            drain.take(messages);
        }
    }

    RocketmqDriver.Work delivering() {
        int messages = driver.number("messages");
        AtomicLong numbers = new AtomicLong();
        return seconds -> {
            String topic = "bench-delay-" + numbers.getAndIncrement();
            Run run = run(topic, messages, driver.number("delay_level"));
            double took = run.drain.seconds();
            String values = String.format(Locale.ROOT, "%s, \"waiting\": %d, %s",
                RocketmqDriver.rate(messages, took), run.waiting,
                RocketmqDriver.quantiles(RocketmqDriver.LongList.sorted(run.late)));
            return RocketmqDriver.json("delayed", values, messages, driver.stored(topic), took,
                run.drain.handed.get());
        };
    }

    private Run run(String topic, int messages, int level) throws Exception {
        driver.createTopic(topic);
        Run run = new Run(messages);
        DefaultMQPushConsumer consumer = new Consuming(driver).consumer(topic + "-group");
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            run.take(received, LEVELS_MS[level] * 1_000);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        RocketmqDriver.Sender sender = number -> {
            Instant now = Instant.now();
            long micros = TimeUnit.SECONDS.toMicros(now.getEpochSecond()) + now.getNano() / 1_000;
            Message message = new Message(topic, driver.stamped(micros));
            message.setDelayTimeLevel(level);
            RocketmqDriver.acknowledged(driver.producer.send(message));
            run.sent.incrementAndGet();
        };
        driver.flood(sender, driver.number("in_flight"), 1, 0, messages, driver.number("pace"));
        run.drain.await(driver.number("size"));
        consumer.shutdown();
        return run;
    }
}
