import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The commands of the real mqadmin that time sends, run in this process, so that they are warm.
 *
 * <p>Both send one message after the other, take whole milliseconds of each, and print a mean. What
 * the driver's own watch says of the same sends is not asked: here the tool judges.
 */
final class Mqadmin {
    private static final Pattern AVERAGE = Pattern.compile("Avg RT: ([0-9.]+)");
    private static final Pattern CLUSTER =
        Pattern.compile("(?m)^\\S+\\s+broker-a\\s+([0-9.]+)\\s+([0-9]+)\\s+([0-9]+)");
    private static final Pattern FAILED = Pattern.compile("(?m)\\sfalse\\s");

    private final RocketmqDriver driver;

    /** The tool of 4.9 wants a configuration of its log in the home of a RocketMQ. */
    Mqadmin(RocketmqDriver driver) throws IOException {
        this.driver = driver;
        Path home = Files.createDirectories(Path.of(System.getProperty("user.home"), "mqadmin"));
        Files.writeString(Files.createDirectories(home.resolve("conf")).resolve("logback_tools.xml"),
            "<configuration><root level=\"OFF\"/></configuration>");
        System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, home.toString());
    }

    RocketmqDriver.Work checkingSendRt() throws Exception {
        String topic = driver.createTopic("bench-mqadmin");
        int amount = driver.number("messages");
        return seconds -> {
            long before = driver.stored(topic);
            long began = System.nanoTime();
            String printed = run("checkMsgSendRT", "-t", topic, "-a", "" + amount);
            double took = (System.nanoTime() - began) / 1e9;
            if (FAILED.matcher(printed).find()) {
                throw new IllegalStateException("a send failed: " + printed);
            }
            // it sends once more, before those that it counts
            long there = driver.stored(topic, before + amount) - before;
            return outcome("check-send-rt", found(AVERAGE, printed), amount, there, took);
        };
    }

    RocketmqDriver.Work clusterRt() throws Exception {
        int amount = driver.number("messages");
        driver.createTopic("bench-mqadmin"); // waits until the broker has registered
        return seconds -> {
            long before = driver.stored("broker-a");
            long began = System.nanoTime();
            String printed = untilPrinted(amount);
            double took = (System.nanoTime() - began) / 1e9;
            Matcher line = found(CLUSTER, printed);
            if (Integer.parseInt(line.group(2)) != amount) {
                throw new IllegalStateException("sends failed: " + printed);
            }
            long there = driver.stored("broker-a", before + amount) - before;
            return outcome("cluster-rt", line, amount, there, took);
        };
    }

    /** The command never ends by itself: it is interrupted in its sleep behind the first line. */
    private String untilPrinted(int amount) throws Exception {
        String[] printed = new String[1];
        Thread command = new Thread(() -> printed[0] = run("clusterRT", "-a", "" + amount,
            "-c", "DefaultCluster", "-i", "600"));
        command.start();
        while (command.isAlive() && !asleep(command)) {
            Thread.sleep(1);
        }
        command.interrupt();
        command.join();
        return printed[0];
    }

    /** In its own Thread.sleep between two rounds, and not waiting for an answer. */
    private static boolean asleep(Thread command) {
        StackTraceElement[] frames = command.getStackTrace();
        int at = 0;
        while (at < frames.length && frames[at].getClassName().equals("java.lang.Thread")) {
            at++;
        }
        return at > 0 && at < frames.length
            && frames[at].getClassName().endsWith("CLusterSendMsgRTCommand");
    }

    private String run(String... command) {
        String[] arguments = new String[command.length + 2];
        System.arraycopy(command, 0, arguments, 0, command.length);
        arguments[command.length] = "-n";
        arguments[command.length + 1] = driver.text("address");
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(before);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    private static Matcher found(Pattern pattern, String printed) {
        Matcher line = pattern.matcher(printed);
        if (!line.find()) {
            throw new IllegalStateException("mqadmin printed: " + printed);
        }
        return line;
    }

    private static String outcome(String work, Matcher line, int sent, long stored, double took) {
        String values = String.format(Locale.ROOT, "\"mean_ms\": %s", line.group(1));
        return RocketmqDriver.json(work, values, sent, stored, took, null);
    }
}
