import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * RocketMQ's own mqadmin of 4.9 or 5.3, one command line after the other, in one JVM.
 *
 * <p>A line of standard input is a command: seconds, then its arguments, all separated by tabs. Its
 * answer is one line of standard output: "ended" or "endless" and what it printed on both streams,
 * in base64. A command that has not ended after its seconds is left alone (some never do). A command
 * that ends the JVM ends this program, and says so by its silence. The first line of output has the
 * names of all commands.
 */
public final class MqadminLines {
    private MqadminLines() {
    }

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(System.getProperty("user.home"));
        Files.createDirectories(home.resolve("conf"));
        Path logging = home.resolve("conf/logback_tools.xml"); // where 4.9 looks; 5.3 is told
        Files.writeString(logging, "<configuration><root level=\"OFF\"/></configuration>");
        System.setProperty("rmq.logback.configurationFile", logging.toString());
        System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, home.toString());
        PrintStream answers = System.out;
        System.setOut(System.err); // what a logging library has to say at its start
        answers.println(names());
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line = lines.readLine();
        while (line != null) {
            String[] parts = line.split("\t", -1);
            String[] command = List.of(parts).subList(1, parts.length).toArray(String[]::new);
            ByteArrayOutputStream kept = new ByteArrayOutputStream();
            commands().clear(); // they are made again: some of them run once only
            PrintStream into = new PrintStream(kept, true, StandardCharsets.UTF_8);
            System.setOut(into);
            System.setErr(into);
            Thread running = new Thread(() -> MQAdminStartup.main0(command, null));
            running.setDaemon(true);
            running.start();
            running.join(Long.parseLong(parts[0]) * 1000);
            String how = running.isAlive() ? "endless" : "ended";
            answers.println(how + " " + Base64.getEncoder().encodeToString(kept.toByteArray()));
            line = lines.readLine();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String names() throws Exception {
        MQAdminStartup.initCommand();
        return commands().stream().map(SubCommand::commandName).collect(Collectors.joining(" "));
    }

    /** The tool's only list; its name differs between RocketMQ 4 and 5. */
    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (field.getType() == List.class) {
                field.setAccessible(true);
                return (List<SubCommand>) field.get(null);
            }
        }
        throw new NoSuchFieldException("MQAdminStartup has no list of commands");
    }
}
