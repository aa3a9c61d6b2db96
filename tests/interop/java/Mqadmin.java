import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's own command line, mqadmin, tried against whatever serves at an address.
 *
 * <p>Arguments and lines as those of {@link Interop}. A scenario is some commands, each with a text
 * that it prints when it did what it should: mqadmin ends well whatever happened, and prints what
 * went wrong. Commands follow each other, as they write to one standard output.
 */
public final class Mqadmin {
    private static final String TOPIC = "InteropMqadmin";
    private static final String GROUP = "interop-mqadmin";

    /** A command line without addresses, and what must be in its output. */
    private record Command(String line, String wanted) {
    }

    private Mqadmin() {
    }

    private static Map<String, List<Command>> scenarios() {
        Map<String, List<Command>> all = new LinkedHashMap<>();
        all.put("mqadmin-cluster", List.of(
            new Command("clusterList -n NAMESRV", "DefaultCluster    broker-a"),
            new Command("clusterList -m -n NAMESRV", "#InTotalToday"),
            new Command("brokerStatus -n NAMESRV -b BROKER", "bootTimestamp"),
            new Command("getBrokerConfig -n NAMESRV -b BROKER", "autoCreateTopicEnable"),
            new Command("getNamesrvConfig -n NAMESRV", "listenPort")));
        all.put("mqadmin-topics", List.of(
            new Command("updateTopic -n NAMESRV -b BROKER -r 2 -w 2 -t " + TOPIC, "success"),
            new Command("topicRoute -n NAMESRV -t " + TOPIC, "\"writeQueueNums\":2"),
            new Command("sendMessage -n NAMESRV -p hello -t " + TOPIC, "SEND_OK"),
            new Command("printMsg -n NAMESRV -t " + TOPIC, "hello"),
            new Command("topicStatus -n NAMESRV -t " + TOPIC, "broker-a"),
            new Command("topicList -n NAMESRV", TOPIC),
            new Command("topicClusterList -n NAMESRV -t " + TOPIC, "DefaultCluster"),
            new Command("deleteTopic -n NAMESRV -c DefaultCluster -t " + TOPIC, "success")));
        all.put("mqadmin-groups", List.of(
            new Command("updateSubGroup -n NAMESRV -b BROKER -g " + GROUP, "success"),
            new Command("consumerProgress -n NAMESRV", "#Diff Total"),
            new Command("brokerConsumeStats -n NAMESRV -b BROKER", "Diff Total"),
            new Command("statsAll -n NAMESRV", "#Accumulation"),
            new Command("deleteSubGroup -n NAMESRV -b BROKER -g " + GROUP, "success")));
        all.put("mqadmin-permissions", List.of(
            new Command("wipeWritePerm -n NAMESRV -b broker-a", "wipe write perm of broker"),
            new Command("addWritePerm -n NAMESRV -b broker-a", "add write perm of broker")));
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Interop.options(arguments);
        String namesrv = options.get("address");
        Path home = Files.createTempDirectory(Path.of(System.getProperty("user.home")), "mqadmin");
        Files.createDirectories(home.resolve("conf"));
        Files.writeString(home.resolve("conf/logback_tools.xml"),
            "<configuration><root level=\"OFF\"/></configuration>");
        System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, home.toString());
        Map<String, List<Command>> all = scenarios();
        List<String> chosen = List.of(options.get("scenarios").split(","));
        if (chosen.equals(List.of("list"))) {
            all.keySet().forEach(System.out::println);
            return;
        }
        String broker;
        try (Stand stand = new Stand("mqadmin", namesrv, "")) {
            broker = stand.broker();
        }
        for (String name : chosen) {
            long began = System.nanoTime();
            String detail = "";
            for (Command command : all.get(name)) {
                String line = command.line().replace("NAMESRV", namesrv).replace("BROKER", broker);
                String printed = printed(line.split(" "));
                if (!printed.contains(command.wanted()) || printed.contains("Exception")) {
                    detail = "mqadmin " + line + " printed: " + printed;
                    break;
                }
            }
            Interop.say(Interop.line(name, detail.isEmpty(), (System.nanoTime() - began) / 1e9,
                Map.of("commands", (long) all.get(name).size()), detail));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String printed(String[] line) {
        PrintStream before = System.out;
        ByteArrayOutputStream kept = new ByteArrayOutputStream();
        System.setOut(new PrintStream(kept, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(line, null);
        } finally {
            System.setOut(before);
        }
        return kept.toString(StandardCharsets.UTF_8);
    }
}
