import com.alibaba.fastjson.JSON;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionService;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * What RocketMQ's own Java client can do, tried against whatever serves at an address.
 *
 * <p>Arguments are key=value: address (of the name server), scenarios (names with commas, or all),
 * mark (a word in all names, so that a server may be tried again), at_once (how many run beside each other), seconds (for all of them together). Every scenario
 * prints one JSON line when it ends: name, ok, seconds, counts, detail. A scenario has topics and
 * groups of its own, so they do not meet.
 *
 * <p>Nothing here knows whose server it is: the same program is run against RocketMQ and Kourou.
 */
public final class Interop {
    /** One thing that is tried; it throws when it does not come out as it should. */
    interface Scenario {
        void run(Stand stand) throws Exception;
    }

    private Interop() {
    }

    private static Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        // those that wait longest begin first
        all.put("reset-offset", Looking::resetOffset);
        Retries.addTo(all);
        Transactions.addTo(all);
        Delays.addTo(all);
        Pushing.addTo(all);
        Groups.addTo(all);
        Tracing.addTo(all);
        Replies.addTo(all);
        Sending.addTo(all);
        Filters.addTo(all);
        Pulling.addTo(all);
        Looking.addTo(all);
        Ruling.addTo(all);
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        // a member looks for queues of its own accord only so often; 20 s would be waited for
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        Map<String, String> options = options(arguments);
        Map<String, Scenario> all = scenarios();
        String wanted = options.getOrDefault("scenarios", "all");
        if (wanted.equals("list")) {
            all.keySet().forEach(System.out::println);
            return;
        }
        List<String> chosen = new ArrayList<>(all.keySet());
        if (!wanted.equals("all")) {
            Moving.addTo(all);
            ClassFilters.addTo(all);
            Secured.addTo(all);
            chosen.addAll(all.keySet().stream().filter(name -> !chosen.contains(name)).toList());
            List<String> named = Arrays.asList(wanted.split(","));
            for (String name : named) {
                if (!all.containsKey(name)) {
                    throw new IllegalArgumentException("there is no scenario " + name);
                }
            }
            chosen.retainAll(named);
        }
        runAll(all, chosen, options);
        System.out.flush();
        // every line is out: neither shutdown hooks nor the client's threads have more to say
        Runtime.getRuntime().halt(0);
    }

    static Map<String, String> options(String[] arguments) {
        Map<String, String> options = new LinkedHashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            options.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        return options;
    }

    private static void runAll(
        Map<String, Scenario> all, List<String> chosen, Map<String, String> options
    ) throws InterruptedException, ExecutionException {
        long end = System.nanoTime()
            + TimeUnit.SECONDS.toNanos(Long.parseLong(options.getOrDefault("seconds", "120")));
        ExecutorService threads = Executors.newFixedThreadPool(
            Integer.parseInt(options.getOrDefault("at_once", "8")));
        CompletionService<String> running = new ExecutorCompletionService<>(threads);
        List<String> open = new ArrayList<>(chosen);
        for (String name : chosen) {
            running.submit(() -> {
                say(tried(name, all.get(name), options.get("address"),
                    options.getOrDefault("mark", "")));
                return name;
            });
        }
        while (!open.isEmpty()) {
            var done = running.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (done == null) {
                break;
            }
            open.remove(done.get());
        }
        for (String name : open) {
            say(line(name, false, 0, Map.of(), "not done when the time was over"));
        }
    }

    private static Map<String, Object> tried(
        String name, Scenario scenario, String address, String mark
    ) {
        long began = System.nanoTime();
        Stand stand = new Stand(name, address, mark);
        String detail = "";
        try (stand) {
            scenario.run(stand);
        } catch (Throwable failure) { // whatever it was, it becomes the scenario's line
            detail = told(failure);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        return line(name, detail.isEmpty(), seconds, stand.counts(), detail);
    }

    private static String told(Throwable failure) {
        StringBuilder text = new StringBuilder(failure.toString());
        for (StackTraceElement frame : failure.getStackTrace()) {
            if (!frame.getClassName().contains(".")) { // ours: the default package
                text.append(" at ").append(frame.getFileName()).append(':')
                    .append(frame.getLineNumber());
            }
        }
        if (failure.getCause() != null) {
            text.append(", because ").append(failure.getCause());
        }
        return text.toString();
    }

    static Map<String, Object> line(
        String name, boolean ok, double seconds, Map<String, Long> counts, String detail
    ) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("name", name);
        line.put("ok", ok);
        line.put("seconds", Math.round(seconds * 1000) / 1000.0);
        line.put("counts", counts);
        line.put("detail", detail);
        return line;
    }

    static synchronized void say(Map<String, Object> line) {
        System.out.println(JSON.toJSONString(line));
        System.out.flush();
    }
}
