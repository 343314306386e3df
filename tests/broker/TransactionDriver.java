import static java.util.stream.Collectors.joining;
import static java.util.stream.Collectors.toSet;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Utils;

/**
 * Makes a broker write transactions and asks its coordinator what it knows about them.
 *
 * <pre>
 * TransactionDriver BOOTSTRAP scenario OUT   runs the fixed scenario, then describes its ids into OUT
 * TransactionDriver BOOTSTRAP storm OUT      runs transactions until killed; OUT appears when every id has some
 * TransactionDriver BOOTSTRAP describe OUT   waits until the storm's ids are loaded and settled, describes them
 * </pre>
 *
 * A description is one line of ASCII JSON per transactional id. Its "partition" is computed here, by Java's own
 * string hash; an absent start time is -1. The driver fails if ListTransactions and DescribeTransactions disagree.
 */
public final class TransactionDriver {
    private static final String STATE_TOPIC = "__transaction_state";
    /** The broker's transaction.state.log.num.partitions: a topic with another count is never loaded. */
    /** Partitions of the state topic, as the broker's configuration says; an argument of its own where they differ. */
    private static int statePartitions = 7;
    /** So small that a partition's log rolls several times within a scenario. */
    private static final String STATE_SEGMENT_BYTES = "4096";

    private static final Map<String, Integer> TOPICS =
        Map.of("orders", 3, "payments.eu_west-1", 2, "wide", 12);
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int STORM_IDS = 8;
    private static final int STORM_WARM_UP = 10;

    /** Ids that break careless readers and printers. The client itself trims ASCII blanks and controls. */
    private static final List<String> ODD_IDS = List.of(
        "two  spaces", "no\u00a0break\u00a0", "single'quote", "double\"quote", "back\\slash", "slash/../..",
        "a,b;c", "-1", "null", "new\nline", "tab\tbell\u0007nul\u0000end", "esc\u001b[31mred\u001b[0m",
        "right\u202eleft", "<script>alert(1)</script>", "=cmd|' /C calc'!A0", "\u00fcn\u00efc\u00f6d\u00e9",
        "e\u0301 is not \u00e9", "\u65e5\u672c\u8a9e", "\ud83e\udd80 crab",
        "long-" + "x".repeat(3_500));

    private final String bootstrap;
    private final Admin admin;

    private TransactionDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "driver-admin"));
    }

    public static void main(String[] args) throws Exception {
        var driver = new TransactionDriver(args[0]);
        var out = Path.of(args[2]);
        if (args.length > 3) {
            statePartitions = Integer.parseInt(args[3]);
        }
        switch (args[1]) {
            case "scenario" -> driver.describe(driver.scenario(), out);
            case "storm" -> driver.storm(out);
            case "describe" -> driver.describe(stormIds(), out);
            case "topics" -> driver.topics(out);
            case "sample" -> driver.sample(Path.of(args[4]), out);
            default -> throw new IllegalArgumentException("no such mode: " + args[1]);
        }
        // Clients left open on purpose keep threads alive.
        System.exit(0);
    }

    // ---- what is written ----

    /** Does each id's work, several ids at a time, and returns the ids. */
    private Set<String> scenario() throws Exception {
        createTopics();
        var work = new TreeMap<String, Consumer<String>>();
        for (int i = 0; i < 12; i++) {
            int n = i;
            work.put("finished-" + i, id -> finished(id, n));
        }
        for (int i = 0; i < 6; i++) {
            int n = i;
            work.put("open-" + i, id -> open(id, n));
            work.put("initialised-" + i, id -> initialised(id, n));
        }
        for (int i = 0; i < 3; i++) {
            int n = i;
            work.put("fenced-" + i, id -> fenced(id, n));
        }
        work.put("offsets-open", id -> offsets(id, false));
        work.put("offsets-finished", id -> offsets(id, true));
        work.put("wide", this::wide);
        for (int i = 0; i < ODD_IDS.size(); i++) {
            int n = i;
            work.put(ODD_IDS.get(i), id -> odd(id, n));
        }

        var threads = Executors.newFixedThreadPool(8);
        var running = new ArrayList<Future<?>>();
        work.forEach((id, task) -> running.add(threads.submit(() -> task.accept(id))));
        for (var task : running) {
            task.get();
        }
        return work.keySet();
    }

    private void finished(String id, int i) {
        try (var producer = producer(id, 60_000 + i)) {
            for (int n = 0; n <= i; n++) {
                end(producer, n, (n + i) % 3 != 0);
            }
        }
    }

    private void open(String id, int i) {
        var producer = producer(id, 600_000 + i);
        for (int n = 0; n < i; n++) {
            end(producer, n, n % 2 == 0);
        }
        producer.beginTransaction();
        send(producer, i);
        abandon(producer);
    }

    private void initialised(String id, int i) {
        for (int n = 0; n <= i; n++) {
            producer(id, 30_000 + n).close();
        }
    }

    /** The second producer of the id ends the first one's transaction by fencing it. */
    private void fenced(String id, int i) {
        var first = producer(id, 60_000);
        first.beginTransaction();
        send(first, i);
        abandon(first);
        try (var second = producer(id, 61_000)) {
            if (i > 0) {
                end(second, i, i == 1);
            }
        }
    }

    /** A transaction over a partition of __consumer_offsets only. */
    private void offsets(String id, boolean commit) {
        var producer = producer(id, 60_000);
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(
            Map.of(new TopicPartition("orders", 0), new OffsetAndMetadata(7)), consumerGroup());
        if (commit) {
            producer.commitTransaction();
        }
        abandon(producer);
    }

    /** One open transaction over every partition there is. */
    private void wide(String id) {
        var producer = producer(id, 900_000);
        producer.beginTransaction();
        for (var topic : TOPICS.entrySet()) {
            for (int partition = 0; partition < topic.getValue(); partition++) {
                producer.send(new ProducerRecord<>(topic.getKey(), partition, null, "w"));
            }
        }
        abandon(producer);
    }

    private void odd(String id, int i) {
        var producer = producer(id, 60_000);
        end(producer, i, i % 2 == 0);
        if (i % 4 == 3) {
            producer.beginTransaction();
            send(producer, i);
        }
        abandon(producer);
    }

    /** Runs transactions on all storm ids at once, for ever. */
    private void storm(Path out) throws Exception {
        createTopics();
        var warm = new CountDownLatch(STORM_IDS);
        for (String id : stormIds()) {
            new Thread(() -> {
                var producer = producer(id, 600_000);
                for (int n = 0; ; n++) {
                    end(producer, n, n % 5 != 4);
                    if (n == STORM_WARM_UP) {
                        warm.countDown();
                    }
                }
            }).start();
        }
        warm.await();
        Files.writeString(out, "");
        Thread.sleep(Long.MAX_VALUE);
    }

    /** Makes the topics and nothing in them. */
    private void topics(Path out) throws Exception {
        createTopics();
        Files.writeString(out, "");
    }

    /** Describes the ids of a file, one a line, once no id of the whole topic waits for its markers. */
    private void sample(Path ids, Path out) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (admin.listTransactions(new ListTransactionsOptions().filterStates(Set.of(
                TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))).all().get().size() > 0) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("ids are still being completed");
            }
            Thread.sleep(100);
        }
        var lines = new StringBuilder();
        for (var entry : new TreeMap<>(admin.describeTransactions(Files.readAllLines(ids)).all().get()).entrySet()) {
            lines.append(json(entry.getKey(), entry.getValue())).append('\n');
        }
        var part = Files.writeString(Path.of(out + ".part"), lines);
        Files.move(part, out);
    }

    private static Set<String> stormIds() {
        return IntStream.range(0, STORM_IDS).mapToObj(i -> "storm-" + i).collect(toSet());
    }

    private void createTopics() throws Exception {
        var state = new NewTopic(STATE_TOPIC, statePartitions, (short) 1).configs(Map.of(
            "cleanup.policy", "compact",
            "compression.type", "uncompressed",
            "internal.segment.bytes", STATE_SEGMENT_BYTES));
        var data = TOPICS.entrySet().stream()
            .map(topic -> new NewTopic(topic.getKey(), topic.getValue(), (short) 1));
        admin.createTopics(Stream.concat(Stream.of(state), data).toList()).all().get();
    }

    private KafkaProducer<String, String> producer(String id, int timeoutMs) {
        var producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "client.id", "driver", "transactional.id", id,
                "transaction.timeout.ms", timeoutMs, "retry.backoff.ms", 5, "linger.ms", 0),
            new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private ConsumerGroupMetadata consumerGroup() {
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap, "group.id", "group");
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, text, text)) {
            return consumer.groupMetadata();
        }
    }

    private static void end(KafkaProducer<String, String> producer, int seed, boolean commit) {
        producer.beginTransaction();
        send(producer, seed);
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    /** Sends one to three records, to partitions that depend on the seed, and waits for them. */
    private static void send(KafkaProducer<String, String> producer, int seed) {
        producer.send(new ProducerRecord<>("orders", seed % 3, null, "o" + seed));
        if (seed % 2 == 1) {
            producer.send(new ProducerRecord<>("payments.eu_west-1", seed / 2 % 2, null, "p" + seed));
        }
        if (seed % 3 == 2) {
            producer.send(new ProducerRecord<>("wide", seed % 12, "k", "w" + seed));
        }
        producer.flush();
    }

    /** Goes away as a crashed client does: an orderly close would abort the open transaction. */
    private static void abandon(KafkaProducer<String, String> producer) {
        producer.flush();
        producer.close(Duration.ZERO);
    }

    // ---- what the coordinator answers ----

    private void describe(Set<String> expected, Path out) throws Exception {
        var listed = new HashMap<String, TransactionListing>();
        for (var listing : settled(expected)) {
            listed.put(listing.transactionalId(), listing);
        }
        var described = new TreeMap<>(admin.describeTransactions(expected).all().get());

        var lines = new StringBuilder();
        for (var entry : described.entrySet()) {
            var listing = listed.get(entry.getKey());
            var description = entry.getValue();
            if (listing.state() != description.state() || listing.producerId() != description.producerId()) {
                throw new IllegalStateException("listed as " + listing + ", described as " + description);
            }
            lines.append(json(entry.getKey(), description)).append('\n');
        }
        // Written whole or not at all, so that its existence means that the driver got to the end.
        var part = Files.writeString(Path.of(out + ".part"), lines);
        Files.move(part, out);
    }

    /** Waits until the coordinator knows exactly the expected ids and none of them waits for its markers. */
    private Iterable<TransactionListing> settled(Set<String> expected) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        var moving = Set.of(TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT,
            TransactionState.PREPARE_EPOCH_FENCE);
        while (true) {
            var listings = admin.listTransactions(new ListTransactionsOptions()).all().get();
            var ids = listings.stream().map(TransactionListing::transactionalId).collect(toSet());
            if (ids.equals(expected) && listings.stream().noneMatch(listing -> moving.contains(listing.state()))) {
                return listings;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("never settled: expected " + expected + ", listed " + listings);
            }
            Thread.sleep(50);
        }
    }

    private static String json(String id, TransactionDescription description) {
        String open = description.topicPartitions().stream()
            .sorted(Comparator.comparing(TopicPartition::topic).thenComparingInt(TopicPartition::partition))
            .map(partition -> "[" + quoted(partition.topic()) + "," + partition.partition() + "]")
            .collect(joining(",", "[", "]"));
        return "{\"transactionalId\":" + quoted(id)
            + ",\"partition\":" + Utils.abs(id.hashCode()) % statePartitions
            + ",\"coordinatorId\":" + description.coordinatorId()
            + ",\"state\":" + quoted(description.state().toString())
            + ",\"producerId\":" + description.producerId()
            + ",\"producerEpoch\":" + description.producerEpoch()
            + ",\"transactionTimeoutMs\":" + description.transactionTimeoutMs()
            + ",\"transactionStartTimeMs\":" + description.transactionStartTimeMs().orElse(-1)
            + ",\"topicPartitions\":" + open + "}";
    }

    private static String quoted(String text) {
        return text.chars()
            .mapToObj(c -> c < ' ' || c > '~' || c == '"' || c == '\\' ? String.format("\\u%04x", c) : "" + (char) c)
            .collect(joining("", "\"", "\""));
    }
}
