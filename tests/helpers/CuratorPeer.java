import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collection;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;

/**
 * Curator's locks, driven by lines on standard input: a Java service for tests to share a ZooKeeper with.
 *
 * <p>A line is {@code id client thread command arguments...}, with tabs between, and is answered by {@code id ok result}
 * or {@code id error what}, in any order. Each command runs on the thread it names, so an acquire that blocks holds up
 * only what the same thread is told to do next. A client is one session with its own locks; one object serves all
 * threads of a client for each path. At the end of the input the process ends, and says no farewell.
 */
public final class CuratorPeer {
    private static final Map<String, Client> CLIENTS = new ConcurrentHashMap<>();
    private static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // a library that prints must not be taken for an answer
        OUT.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            String id = words[0];
            Client client = CLIENTS.computeIfAbsent(words[1], name -> new Client());
            Command command = new Command(words);
            if (command.name.equals("close")) {
                CLIENTS.remove(words[1]);
                new Thread(() -> answer(id, client, command), "close").start();
            } else {
                client.thread(words[2]).execute(() -> answer(id, client, command));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(String id, Client client, Command command) {
        String outcome;
        try {
            outcome = "ok\t" + client.run(command);
        } catch (Throwable error) {
            outcome = "error\t" + String.valueOf(error).replaceAll("\\s", " ");
        }
        synchronized (OUT) {
            OUT.println(id + "\t" + outcome);
        }
    }

    private static final class Command {
        final String name;
        private final String[] words;
        private int next = 4;

        Command(String[] words) {
            this.words = words;
            name = words[3];
        }

        boolean hasMore() {
            return next < words.length;
        }

        String text() {
            return words[next++];
        }

        int number() {
            return Integer.parseInt(text());
        }
    }

    private static final QueueSerializer<String> TEXT = new QueueSerializer<String>() {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    };

    private static final class Consumer implements QueueConsumer<String> {
        private final List<String> taken;
        private int failures;

        Consumer(List<String> taken, int failures) {
            this.taken = taken;
            this.failures = failures;
        }

        @Override
        public void consumeMessage(String message) {
            if (failures-- > 0) {
                throw new IllegalStateException("told to fail");
            }
            taken.add(message);
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {}
    }

    private static final class Client {
        private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
        private final Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
        private final Map<String, InterProcessReadWriteLock> pairs = new ConcurrentHashMap<>();
        private final Map<String, InterProcessSemaphoreV2> semaphores = new ConcurrentHashMap<>();
        private final Map<String, Deque<Lease>> leases = new ConcurrentHashMap<>();
        private final Map<String, Object> queues = new ConcurrentHashMap<>();
        private final Map<String, DistributedDoubleBarrier> barriers = new ConcurrentHashMap<>();
        private final Map<String, GroupMember> members = new ConcurrentHashMap<>();
        private final Map<String, List<String>> consumed = new ConcurrentHashMap<>();
        private CuratorFramework curator;
        private String hosts;

        ExecutorService thread(String name) {
            return threads.computeIfAbsent(name, key -> Executors.newSingleThreadExecutor(task -> new Thread(task, key)));
        }

        String run(Command command) throws Exception {
            String name = command.name;
            if (name.equals("connect")) {
                return connect(command.text(), command.number());
            }
            if (name.equals("close")) {
                threads.values().forEach(ExecutorService::shutdownNow);
                curator.close();
                return "";
            }
            if (name.equals("session")) {
                return Long.toHexString(curator.getZookeeperClient().getZooKeeper().getSessionId());
            }
            if (name.equals("expire")) {
                return expire();
            }
            int dot = name.indexOf('.');
            String kind = name.substring(0, dot);
            String verb = name.substring(dot + 1);
            String path = command.text();
            if (kind.equals("queue") || kind.equals("priorityQueue") || kind.equals("delayQueue")) {
                return queue(kind, verb, path, command);
            }
            if (kind.equals("doubleBarrier")) {
                return doubleBarrier(verb, path, command);
            }
            if (kind.equals("group")) {
                return group(verb, path, command);
            }
            return kind.equals("semaphore") ? semaphore(verb, path, command) : lock(kind, verb, path, command);
        }

        private String queue(String kind, String verb, String path, Command command) throws Exception {
            List<String> taken = consumed.computeIfAbsent(path, key -> new CopyOnWriteArrayList<>());
            if (verb.equals("taken")) {
                return String.join("\t", taken);
            }
            boolean consumes = verb.equals("consume");
            String key = kind + path + consumes;
            Object queue = queues.get(key);
            if (queue == null) {
                QueueBuilder<String> builder =
                        QueueBuilder.builder(curator, consumes ? new Consumer(taken, command.number()) : null, TEXT, path + "/items")
                                .lockPath(path + "/claims");
                if (kind.equals("queue")) {
                    DistributedQueue<String> made = builder.buildQueue();
                    made.start();
                    queue = made;
                } else if (kind.equals("delayQueue")) {
                    DistributedDelayQueue<String> made = builder.buildDelayQueue();
                    made.start();
                    queue = made;
                } else {
                    DistributedPriorityQueue<String> made = builder.buildPriorityQueue(1);
                    made.start();
                    queue = made;
                }
                queues.put(key, queue);
            }
            if (verb.equals("put") && kind.equals("queue")) {
                ((DistributedQueue<String>) queue).put(command.text());
            } else if (verb.equals("put") && kind.equals("delayQueue")) {
                long due = System.currentTimeMillis() + command.number();
                ((DistributedDelayQueue<String>) queue).put(command.text(), due);
            } else if (verb.equals("put")) {
                int priority = command.number();
                ((DistributedPriorityQueue<String>) queue).put(command.text(), priority);
            } else if (verb.equals("putMulti")) {
                Iterator<String> items = Arrays.asList(command.text().split(",")).iterator();
                ((DistributedQueue<String>) queue).putMulti(() -> items.hasNext() ? items.next() : null);
            }
            return "";
        }

        private String doubleBarrier(String verb, String path, Command command) throws Exception {
            int parties = command.number();
            DistributedDoubleBarrier barrier = barriers.computeIfAbsent(
                    path + "\t" + Thread.currentThread().getId(), key -> new DistributedDoubleBarrier(curator, path, parties));
            long wait = command.hasMore() ? command.number() : Integer.MAX_VALUE;
            boolean done = verb.equals("enter")
                    ? barrier.enter(wait, TimeUnit.MILLISECONDS)
                    : barrier.leave(wait, TimeUnit.MILLISECONDS);
            if (verb.equals("leave")) {
                barriers.values().remove(barrier); // one object is for one use
            }
            return String.valueOf(done);
        }

        private String group(String verb, String path, Command command) throws Exception {
            String id = command.text();
            GroupMember member = members.computeIfAbsent(
                    path + "\t" + id,
                    key -> command.hasMore()
                            ? new GroupMember(curator, path, id, command.text().getBytes(StandardCharsets.UTF_8))
                            : new GroupMember(curator, path, id));
            switch (verb) {
                case "join":
                    member.start();
                    return "";
                case "leave":
                    members.values().remove(member);
                    member.close();
                    return "";
                case "set":
                    member.setThisData(command.text().getBytes(StandardCharsets.UTF_8));
                    return "";
                case "members":
                    StringBuilder found = new StringBuilder();
                    new TreeMap<>(member.getCurrentMembers()).forEach((each, data) -> found.append(
                            (found.length() == 0 ? "" : "\t") + each + "=" + new String(data, StandardCharsets.UTF_8)));
                    return found.toString();
                default:
                    throw new IllegalArgumentException(verb);
            }
        }

        private String connect(String hosts, int timeout) throws Exception {
            this.hosts = hosts;
            curator = CuratorFrameworkFactory.newClient(hosts, timeout, 15_000, new ExponentialBackoffRetry(50, 5));
            curator.start();
            if (!curator.blockUntilConnected(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not connected to " + hosts + " within 30 s");
            }
            return "";
        }

        /** Ends the session at the server, as ZooKeeper's own tests do: enters it a second time, and closes it. */
        private String expire() throws Exception {
            ZooKeeper mine = curator.getZookeeperClient().getZooKeeper();
            CountDownLatch entered = new CountDownLatch(1);
            ZooKeeper second = new ZooKeeper(
                    hosts,
                    mine.getSessionTimeout(),
                    event -> {
                        if (event.getState() == KeeperState.SyncConnected) {
                            entered.countDown();
                        }
                    },
                    mine.getSessionId(),
                    mine.getSessionPasswd());
            boolean done = entered.await(10, TimeUnit.SECONDS);
            second.close();
            if (!done) {
                throw new IllegalStateException("the session could not be entered");
            }
            return "";
        }

        private String lock(String kind, String verb, String path, Command command) throws Exception {
            InterProcessLock lock = locks.computeIfAbsent(kind + path, key -> newLock(kind, path));
            switch (verb) {
                case "acquire":
                    if (command.hasMore()) {
                        return String.valueOf(lock.acquire(command.number(), TimeUnit.MILLISECONDS));
                    }
                    lock.acquire();
                    return "true";
                case "release":
                    lock.release();
                    return "";
                case "held": // by any thread of this client
                    return String.valueOf(lock.isAcquiredInThisProcess());
                case "owned": // by the thread that asks
                    return String.valueOf(((InterProcessMutex) lock).isOwnedByCurrentThread());
                case "participants":
                    return nodes(((InterProcessMutex) lock).getParticipantNodes());
                case "increment":
                    return increment(lock::acquire, lock::release, command);
                default:
                    throw new IllegalArgumentException(verb);
            }
        }

        private InterProcessLock newLock(String kind, String path) {
            switch (kind) {
                case "mutex":
                    return new InterProcessMutex(curator, path);
                case "semaphoreMutex":
                    return new InterProcessSemaphoreMutex(curator, path);
                case "multi":
                    return new InterProcessMultiLock(curator, Arrays.asList(path.split(",")));
                case "read":
                    return pair(path).readLock();
                case "write":
                    return pair(path).writeLock();
                default:
                    throw new IllegalArgumentException(kind);
            }
        }

        private InterProcessReadWriteLock pair(String path) {
            return pairs.computeIfAbsent(path, key -> new InterProcessReadWriteLock(curator, key));
        }

        private String semaphore(String verb, String path, Command command) throws Exception {
            int permits = command.number();
            InterProcessSemaphoreV2 semaphore = semaphores.computeIfAbsent(
                    path + "\t" + permits, key -> new InterProcessSemaphoreV2(curator, path, permits));
            Deque<Lease> held = leases.computeIfAbsent(path, key -> new ArrayDeque<>());
            switch (verb) {
                case "acquire":
                    Collection<Lease> got = acquire(semaphore, command);
                    synchronized (held) {
                        held.addAll(got);
                    }
                    return String.valueOf(!got.isEmpty());
                case "release":
                    for (int left = command.hasMore() ? command.number() : 1; left > 0; left--) {
                        synchronized (held) {
                            semaphore.returnLease(held.remove());
                        }
                    }
                    return "";
                case "participants": // of all processes
                    return nodes(semaphore.getParticipantNodes());
                case "increment":
                    ThreadLocal<Lease> own = new ThreadLocal<>();
                    return increment(() -> own.set(semaphore.acquire()), () -> semaphore.returnLease(own.get()), command);
                default:
                    throw new IllegalArgumentException(verb);
            }
        }

        private static Collection<Lease> acquire(InterProcessSemaphoreV2 semaphore, Command command) throws Exception {
            int quantity = command.hasMore() ? command.number() : 1;
            Collection<Lease> got = command.hasMore()
                    ? semaphore.acquire(quantity, command.number(), TimeUnit.MILLISECONDS)
                    : semaphore.acquire(quantity);
            return got == null ? new ArrayDeque<>() : got;
        }

        private static String nodes(Collection<String> paths) {
            return String.join("\t", paths);
        }

        /** Adds one to the number in a file, again and again, in a way that is only right if nobody else does. */
        private static String increment(Step acquire, Step release, Command command) throws Exception {
            Path counter = Paths.get(command.text());
            int cycles = command.number();
            for (int cycle = 0; cycle < cycles; cycle++) {
                acquire.run();
                try {
                    int value = Integer.parseInt(Files.readString(counter));
                    Thread.yield();
                    Files.writeString(counter, String.valueOf(value + 1));
                } finally {
                    release.run();
                }
            }
            return String.valueOf(cycles);
        }
    }

    private interface Step {
        void run() throws Exception;
    }
}
