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
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicNumber;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;
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

    /** Leads until it is interrupted. */
    private static final class Leading extends LeaderSelectorListenerAdapter {
        @Override
        public void takeLeadership(CuratorFramework client) throws InterruptedException {
            new CountDownLatch(1).await();
        }
    }

    private static final class Client {
        private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
        private final Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
        private final Map<String, InterProcessReadWriteLock> pairs = new ConcurrentHashMap<>();
        private final Map<InterProcessLock, AtomicInteger> revoked = new ConcurrentHashMap<>();
        private final Map<String, InterProcessSemaphoreV2> semaphores = new ConcurrentHashMap<>();
        private final Map<String, Deque<Lease>> leases = new ConcurrentHashMap<>();
        private final Map<String, Object> queues = new ConcurrentHashMap<>();
        private final Map<String, LeaderSelector> selectors = new ConcurrentHashMap<>();
        private final Map<String, LeaderLatch> latches = new ConcurrentHashMap<>();
        private final Map<String, DistributedDoubleBarrier> barriers = new ConcurrentHashMap<>();
        private final Map<String, GroupMember> members = new ConcurrentHashMap<>();
        private final Map<String, List<String>> consumed = new ConcurrentHashMap<>();
        private final Map<String, SharedValue> values = new ConcurrentHashMap<>();
        private final Map<String, SharedCount> counts = new ConcurrentHashMap<>();
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
            if (kind.equals("leaderSelector")) {
                return selector(verb, path, command);
            }
            if (kind.equals("leaderLatch")) {
                return latch(verb, path, command);
            }
            if (kind.equals("long")) {
                return number(new DistributedAtomicLong(curator, path, new RetryNTimes(3, 5), promoted(path)), verb, command, 0L);
            }
            if (kind.equals("integer")) {
                return number(new DistributedAtomicInteger(curator, path, new RetryNTimes(3, 5), promoted(path)), verb, command, 0);
            }
            if (kind.equals("value")) {
                return value(verb, path, command);
            }
            if (kind.equals("count")) {
                return count(verb, path, command);
            }
            if (kind.equals("doubleBarrier")) {
                return doubleBarrier(verb, path, command);
            }
            if (kind.equals("group")) {
                return group(verb, path, command);
            }
            return kind.equals("semaphore") ? semaphore(verb, path, command) : lock(kind, verb, path, command);
        }

        private String selector(String verb, String path, Command command) throws Exception {
            if (verb.equals("stand")) {
                LeaderSelector made = new LeaderSelector(curator, path, new Leading());
                made.setId(command.text());
                selectors.put(path, made);
                made.start();
                return "";
            }
            LeaderSelector selector =
                    selectors.computeIfAbsent(path, key -> new LeaderSelector(curator, path, new Leading()));
            switch (verb) {
                case "withdraw":
                    selectors.remove(path).close();
                    return "";
                case "leads":
                    return String.valueOf(selector.hasLeadership());
                case "leader":
                    return selector.getLeader().getId();
                case "participants":
                    return ids(selector.getParticipants());
                default:
                    throw new IllegalArgumentException(verb);
            }
        }

        private String latch(String verb, String path, Command command) throws Exception {
            if (verb.equals("stand")) {
                LeaderLatch made = new LeaderLatch(curator, path, command.text());
                latches.put(path, made);
                made.start();
                return "";
            }
            LeaderLatch latch = latches.computeIfAbsent(path, key -> new LeaderLatch(curator, path));
            switch (verb) {
                case "withdraw":
                    latches.remove(path).close();
                    return "";
                case "leads":
                    return String.valueOf(latch.hasLeadership());
                case "leader":
                    return latch.getLeader().getId();
                case "participants":
                    return ids(latch.getParticipants());
                default:
                    throw new IllegalArgumentException(verb);
            }
        }

        private static String ids(Collection<Participant> participants) {
            List<String> ids = new CopyOnWriteArrayList<>();
            for (Participant each : participants) {
                ids.add(each.getId() + (each.isLeader() ? " leads" : ""));
            }
            return String.join("\t", ids);
        }

        private static PromotedToLock promoted(String path) {
            return PromotedToLock.builder().lockPath(path + "/lock").retryPolicy(new RetryNTimes(1000, 5)).build();
        }

        /** A number: "get", "add" times, "set", "compare". */
        @SuppressWarnings("unchecked")
        private static <N extends Number> String number(DistributedAtomicNumber<N> number, String verb, Command command, N zero)
                throws Exception {
            if (verb.equals("get")) {
                return String.valueOf(number.get().postValue());
            }
            Number first = zero instanceof Long ? (Number) Long.valueOf(command.text()) : (Number) Integer.valueOf(command.text());
            if (verb.equals("set")) {
                number.forceSet((N) first);
                return "";
            }
            if (verb.equals("compare")) {
                Number second = zero instanceof Long ? (Number) Long.valueOf(command.text()) : (Number) Integer.valueOf(command.text());
                return String.valueOf(number.compareAndSet((N) first, (N) second).succeeded());
            }
            int times = command.number();
            for (int done = 0; done < times; done++) {
                AtomicValue<N> result = number.add((N) first);
                if (!result.succeeded()) {
                    throw new IllegalStateException("not added");
                }
            }
            return String.valueOf(number.get().postValue());
        }

        private String value(String verb, String path, Command command) throws Exception {
            SharedValue value = values.get(path);
            if (value == null) {
                value = new SharedValue(curator, path, "seed".getBytes(StandardCharsets.UTF_8));
                value.start();
                values.put(path, value);
            }
            if (verb.equals("set")) {
                value.setValue(command.text().getBytes(StandardCharsets.UTF_8));
            } else if (verb.equals("try")) {
                return String.valueOf(value.trySetValue(value.getVersionedValue(), command.text().getBytes(StandardCharsets.UTF_8)));
            }
            return new String(value.getValue(), StandardCharsets.UTF_8);
        }

        private String count(String verb, String path, Command command) throws Exception {
            SharedCount count = counts.get(path);
            if (count == null) {
                count = new SharedCount(curator, path, 5);
                count.start();
                counts.put(path, count);
            }
            if (verb.equals("set")) {
                count.setCount(command.number());
            }
            return String.valueOf(count.getCount());
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
                case "makeRevocable": // before it is acquired
                    revoked.put(lock, new AtomicInteger());
                    ((InterProcessMutex) lock).makeRevocable(each -> revoked.get(lock).incrementAndGet());
                    return "";
                case "revoked": // how often a holder was asked to let go
                    return String.valueOf(revoked.get(lock));
                case "revoke": // the first in the queue
                    String first = ((InterProcessMutex) lock).getParticipantNodes().iterator().next();
                    Revoker.attemptRevoke(curator, first);
                    return first;
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
