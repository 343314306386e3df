import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.stream.Collectors.toMap;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes a broker write partitions, and says what it finds in them.
 *
 * <pre>
 * StoreDriver BOOTSTRAP topics OUT SPEC...   makes topics; SPEC is NAME:PARTITIONS:PROPERTY=VALUE,...
 * StoreDriver BOOTSTRAP write OUT TOPIC...   writes to them in every way that a producer has
 * StoreDriver BOOTSTRAP storm OUT TOPIC...   the same until killed; OUT appears when every way was taken a few times
 * StoreDriver BOOTSTRAP read OUT TOPIC...    says what is in them
 * StoreDriver BOOTSTRAP go-on OUT TOPIC...   writes some more to every partition, then the same as read
 * </pre>
 *
 * Topics whose name begins with "money" get transactions, others plain and idempotent batches of every codec. What
 * read says, a line each:
 *
 * <pre>
 * end TOPIC PARTITION EARLIEST LATEST STABLE           ListOffsets; STABLE as a read_committed consumer sees it
 * max TOPIC PARTITION OFFSET TIMESTAMP                 ListOffsets of the largest timestamp; -1 -1 for none
 * at TOPIC PARTITION ASKED OFFSET TIMESTAMP            ListOffsets by timestamp; -1 -1 for none
 * producer TOPIC PARTITION ID EPOCH SEQUENCE TIMESTAMP COORDINATOR_EPOCH START   DescribeProducers; -1 for none
 * record TOPIC PARTITION OFFSET EPOCH TIMESTAMP TYPE DIGEST COMMITTED   a consumer; COMMITTED by a read_committed one
 * </pre>
 */
public final class StoreDriver {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int LOOKUPS = 6;
    private static final String LEFT_OPEN = "left-open";

    private final String bootstrap;
    private final Admin admin;
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    private StoreDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "store-admin"));
    }

    public static void main(String[] args) throws Exception {
        var driver = new StoreDriver(args[0]);
        var out = Path.of(args[2]);
        var names = Arrays.asList(args).subList(3, args.length);
        String answer = "";
        switch (args[1]) {
            case "topics" -> driver.topics(names);
            case "write" -> driver.write(names);
            case "storm" -> driver.storm(names, out);
            case "read" -> answer = driver.read(names);
            case "go-on" -> {
                driver.goOn(names);
                answer = driver.read(names);
            }
            default -> throw new IllegalArgumentException("no such mode: " + args[1]);
        }
        // Written whole or not at all, so that its existence means that the driver got to the end.
        Files.move(Files.writeString(Path.of(out + ".part"), answer), out);
        // A client left open on purpose keeps threads alive.
        System.exit(0);
    }

    // ---- what is written ----

    private void topics(List<String> specs) throws Exception {
        var topics = new ArrayList<NewTopic>();
        for (String spec : specs) {
            String[] parts = spec.split(":");
            var settings = Arrays.stream(parts[2].split(",")).map(pair -> pair.split("="))
                .collect(toMap(pair -> pair[0], pair -> pair[1]));
            topics.add(new NewTopic(parts[0], Integer.parseInt(parts[1]), (short) 1).configs(settings));
        }
        admin.createTopics(topics).all().get();
    }

    private void write(List<String> topics) throws Exception {
        var partitions = partitions(topics);
        for (int i = 0; i < CODECS.size(); i++) {
            try (var producer = producer(CODECS.get(i), i % 2 == 1, null)) {
                batches(producer, partitions, 100 * i, 12);
            }
        }
        for (int i = 0; i < 3; i++) {
            try (var producer = producer(CODECS.get(i), true, "money-" + i)) {
                producer.initTransactions();
                for (int n = 0; n < 8; n++) {
                    transaction(producer, partitions, 1000 * i + 10 * n, n % 3 != 1);
                }
            }
        }
        // A transaction that its client leaves as a crash would: an orderly close would abort it.
        var open = producer("none", true, LEFT_OPEN);
        open.initTransactions();
        open.beginTransaction();
        send(open, money(partitions), 7, 3);
        open.flush();
        open.close(Duration.ZERO);
        settle();
    }

    /** The broker's own producers go on, the one whose transaction was left open among them. */
    private void goOn(List<String> topics) throws Exception {
        var partitions = partitions(topics);
        try (var plain = producer("none", false, null); var idempotent = producer("zstd", true, null)) {
            batches(plain, partitions, 5, 2);
            batches(idempotent, partitions, 6, 3);
        }
        for (String id : List.of("money-0", LEFT_OPEN)) {
            try (var producer = producer("none", true, id)) {
                producer.initTransactions();
                transaction(producer, partitions, 1, true);
                transaction(producer, partitions, 2, false);
            }
        }
        settle();
    }

    private void storm(List<String> topics, Path out) throws Exception {
        var partitions = partitions(topics);
        var rounds = new AtomicInteger[] {new AtomicInteger(), new AtomicInteger(), new AtomicInteger()};
        for (int i = 0; i < rounds.length; i++) {
            int way = i;
            new Thread(() -> {
                var producer = producer(CODECS.get(way), way > 0, way == 2 ? "storm" : null);
                if (way == 2) {
                    producer.initTransactions();
                }
                for (int n = 0; ; n++) {
                    if (way == 2) {
                        transaction(producer, partitions, n, n % 5 != 4);
                    } else {
                        batches(producer, partitions, n, 1);
                    }
                    rounds[way].incrementAndGet();
                }
            }).start();
        }
        while (Arrays.stream(rounds).anyMatch(round -> round.get() < 40)) {
            Thread.sleep(20);
        }
        Files.writeString(out, "");
        Thread.sleep(Long.MAX_VALUE);
    }

    private KafkaProducer<byte[], byte[]> producer(String codec, boolean idempotent, String transactionalId) {
        var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap, "client.id", "store",
            "compression.type", codec, "enable.idempotence", idempotent, "linger.ms", 1, "retry.backoff.ms", 5));
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
            settings.put("transaction.timeout.ms", 600_000);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** So many batches of one to five records to every partition that gets no transactions. */
    private void batches(
            KafkaProducer<byte[], byte[]> producer, List<TopicPartition> partitions, int seed, int count) {
        var plain = partitions.stream().filter(partition -> !partition.topic().startsWith("money")).toList();
        for (int n = 0; n < count; n++) {
            send(producer, plain, seed + n, 1 + (seed + n) % 5);
            producer.flush();
        }
    }

    private void transaction(
            KafkaProducer<byte[], byte[]> producer, List<TopicPartition> partitions, int seed, boolean commit) {
        producer.beginTransaction();
        send(producer, money(partitions), seed, 1 + seed % 4);
        producer.flush();
        send(producer, money(partitions).subList(0, 1), seed + 1, 2);
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.flush();
            producer.abortTransaction();
        }
    }

    private static List<TopicPartition> money(List<TopicPartition> partitions) {
        return partitions.stream().filter(partition -> partition.topic().startsWith("money")).toList();
    }

    private void send(
            KafkaProducer<byte[], byte[]> producer, List<TopicPartition> partitions, int seed, int count) {
        for (var partition : partitions) {
            var random = new Random(31L * seed + partition.hashCode());
            for (int n = 0; n < count; n++) {
                var value = new byte[random.nextInt(10) == 0 ? 1500 : random.nextInt(200)];
                random.nextBytes(value);
                // Two letters repeat often enough for the codecs to have something to do.
                for (int i = 0; i < value.length / 2; i++) {
                    value[i] = (byte) (value[i] < 0 ? 'a' : 'b');
                }
                var key = random.nextInt(4) == 0 ? null : ("key-" + random.nextInt(50)).getBytes(UTF_8);
                List<Header> headers = random.nextInt(3) > 0 ? List.of()
                    : List.of(new RecordHeader("h", value), new RecordHeader("\u00e9", null));
                // A compacted topic takes no record without a key.
                var kept = key == null && partition.topic().startsWith("compact") ? new byte[0] : key;
                boolean isTombstone = random.nextInt(12) == 0;
                var future = producer.send(new ProducerRecord<>(
                    partition.topic(), partition.partition(), kept, isTombstone ? null : value, headers));
                synchronized (sent) {
                    // A storm never looks at them.
                    if (sent.size() < 100_000) {
                        sent.add(future);
                    }
                }
            }
        }
    }

    /** Every record has an answer, and it is no error. */
    private void settle() throws Exception {
        for (var future : sent) {
            future.get();
        }
    }

    // ---- what is found ----

    private List<TopicPartition> partitions(List<String> topics) throws Exception {
        var partitions = new ArrayList<TopicPartition>();
        admin.describeTopics(topics).allTopicNames().get().forEach((name, description) ->
            description.partitions().forEach(info -> partitions.add(new TopicPartition(name, info.partition()))));
        partitions.sort(Comparator.comparing(TopicPartition::topic).thenComparingInt(TopicPartition::partition));
        return partitions;
    }

    private Map<TopicPartition, ListOffsetsResultInfo> offsets(
            List<TopicPartition> partitions, OffsetSpec spec, IsolationLevel isolation) throws Exception {
        var asked = partitions.stream().collect(toMap(partition -> partition, partition -> spec));
        return admin.listOffsets(asked, new ListOffsetsOptions(isolation)).all().get();
    }

    private String read(List<String> topics) throws Exception {
        var partitions = partitions(topics);
        var lines = new StringBuilder();
        var earliest = offsets(partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED);
        var latest = offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
        var stable = offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED);
        var largest = offsets(partitions, OffsetSpec.maxTimestamp(), IsolationLevel.READ_UNCOMMITTED);
        for (var partition : partitions) {
            line(lines, "end", partition, earliest.get(partition).offset(), latest.get(partition).offset(),
                stable.get(partition).offset());
            line(lines, "max", partition, largest.get(partition).offset(), largest.get(partition).timestamp());
        }
        for (var entry : admin.describeProducers(partitions).all().get().entrySet()) {
            for (var state : entry.getValue().activeProducers()) {
                line(lines, "producer", entry.getKey(), state.producerId(), state.producerEpoch(),
                    state.lastSequence(), state.lastTimestamp(), state.coordinatorEpoch().orElse(-1),
                    state.currentTransactionStartOffset().orElse(-1));
            }
        }
        var committed = new HashSet<String>();
        consume(stable, "read_committed", record -> committed.add(place(record)));
        var times = new TreeMap<String, long[]>();
        consume(latest, "read_uncommitted", record -> {
            var partition = new TopicPartition(record.topic(), record.partition());
            var range = times.computeIfAbsent(partition.toString(), name -> new long[] {Long.MAX_VALUE, 0});
            range[0] = Math.min(range[0], record.timestamp());
            range[1] = Math.max(range[1], record.timestamp());
            line(lines, "record", partition, record.offset(), record.leaderEpoch().orElse(-1), record.timestamp(),
                record.timestampType(), digest(record), committed.remove(place(record)));
        });
        if (!committed.isEmpty()) {
            throw new IllegalStateException("read as committed and not at all: " + committed);
        }
        for (int n = 0; n < LOOKUPS; n++) {
            var asked = new HashMap<TopicPartition, OffsetSpec>();
            var at = new HashMap<TopicPartition, Long>();
            for (var partition : partitions) {
                long[] range = times.getOrDefault(partition.toString(), new long[] {0, 0});
                // From the first time to one beyond the last.
                long time = range[0] + (range[1] - range[0]) * n / (LOOKUPS - 2);
                at.put(partition, time);
                asked.put(partition, OffsetSpec.forTimestamp(time));
            }
            for (var found : admin.listOffsets(asked).all().get().entrySet()) {
                line(lines, "at", found.getKey(), at.get(found.getKey()), found.getValue().offset(),
                    found.getValue().timestamp());
            }
        }
        return lines.toString();
    }

    private interface Take {
        void take(ConsumerRecord<byte[], byte[]> record) throws Exception;
    }

    private void consume(Map<TopicPartition, ListOffsetsResultInfo> ends, String isolation, Take take)
            throws Exception {
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap, "isolation.level", isolation,
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "check.crcs", true);
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            Set<TopicPartition> partitions = ends.keySet();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one).offset())) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    take.take(record);
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the consumer does not get to " + ends);
                }
            }
        }
    }

    private static String place(ConsumerRecord<byte[], byte[]> record) {
        return record.topic() + "-" + record.partition() + "@" + record.offset();
    }

    /** Over key, value and headers, each with its length in four bytes before it, -1 for null. */
    private static String digest(ConsumerRecord<byte[], byte[]> record) throws Exception {
        var bytes = new ByteArrayOutputStream();
        var out = new DataOutputStream(bytes);
        put(out, record.key());
        put(out, record.value());
        for (Header header : record.headers()) {
            put(out, header.key().getBytes(UTF_8));
            put(out, header.value());
        }
        var digest = MessageDigest.getInstance("SHA-256").digest(bytes.toByteArray());
        return HexFormat.of().formatHex(digest, 0, 12);
    }

    private static void put(DataOutputStream out, byte[] field) throws IOException {
        out.writeInt(field == null ? -1 : field.length);
        out.write(field == null ? new byte[0] : field);
    }

    private static void line(StringBuilder lines, String kind, TopicPartition partition, Object... fields) {
        lines.append(kind).append(' ').append(partition.topic()).append(' ').append(partition.partition());
        for (var field : fields) {
            lines.append(' ').append(field);
        }
        lines.append('\n');
    }
}
