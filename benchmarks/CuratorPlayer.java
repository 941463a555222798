import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;

/**
 * Curator as a contestant: a process that is told what to do by lines, each answered by a line.
 *
 * <p>The commands are those of {@code player.py}, and are described there; the work in each is the same.
 */
public final class CuratorPlayer {
    private static final PrintStream OUT = System.out;

    private String hosts;
    private int sessionTimeout; // milliseconds
    private final List<CuratorFramework> clients = new ArrayList<>();
    private final Map<String, Lock> locks = new ConcurrentHashMap<>();
    private final List<Thread> threads = new ArrayList<>();
    private volatile CountDownLatch running = new CountDownLatch(1);
    private volatile boolean closing;
    private ConcurrentLinkedQueue<String> log = new ConcurrentLinkedQueue<>();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // a library that prints must not be taken for an answer
        // A command that waits for ever would not see that the input has ended.
        ProcessHandle.current().parent().ifPresent(it -> it.onExit().thenRun(() -> Runtime.getRuntime().halt(1)));
        CuratorPlayer player = new CuratorPlayer();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok\t" + player.obey(line.split("\t", -1));
            } catch (Throwable error) {
                answer = "error\t" + String.valueOf(error).replaceAll("\\s", " ");
            }
            OUT.println(answer);
        }
        player.close();
        Runtime.getRuntime().halt(0);
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "clock":
                return String.valueOf(System.nanoTime());
            case "open":
                hosts = words[1];
                sessionTimeout = (int) (Double.parseDouble(words[2]) * 1000);
                closing = false;
                connect();
                return "";
            case "close":
                close();
                return "";
            case "time":
                return time(lock(words[1], words[2]), Integer.parseInt(words[3]));
            case "again":
                return again(lock(words[1], words[2]), Integer.parseInt(words[3]));
            case "hold":
                lock(words[1], words[2]).acquire();
                return String.valueOf(System.nanoTime());
            case "try":
                return tries(lock(words[1], words[2]), Integer.parseInt(words[3]));
            case "join":
                for (int left = Integer.parseInt(words[4]); left > 0; left--) {
                    CuratorFramework client = words[5].equals("1") ? connect() : clients.get(0);
                    boolean own = words[5].equals("1") || words[1].equals("claim");
                    Lock lock = own ? make(client, words[1], words[2]) : lock(words[1], words[2]);
                    join(lock, Integer.parseInt(words[3]));
                }
                return "";
            case "go":
                running.countDown();
                return "";
            case "pause":
                running = new CountDownLatch(1);
                return "";
            case "log":
                List<String> told = new ArrayList<>();
                for (String entry = log.poll(); entry != null; entry = log.poll()) {
                    told.add(entry);
                }
                return String.join(" ", told);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private CuratorFramework connect() throws Exception {
        int patience = Math.min(sessionTimeout, 15_000);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(hosts, sessionTimeout, patience, new ExponentialBackoffRetry(50, 5));
        client.start();
        clients.add(client);
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected within 30 s");
        }
        return client;
    }

    private void close() {
        closing = true;
        threads.forEach(Thread::interrupt);
        threads.clear();
        running.countDown();
        clients.forEach(CuratorFramework::close);
        clients.clear();
        locks.clear();
        running = new CountDownLatch(1);
        log = new ConcurrentLinkedQueue<>();
    }

    private static String time(Lock lock, int count) throws Exception {
        StringBuilder taken = new StringBuilder();
        for (int left = count; left > 0; left--) {
            long start = System.nanoTime();
            lock.acquire();
            lock.release();
            taken.append(System.nanoTime() - start).append(' ');
        }
        return taken.toString().trim();
    }

    private static String again(Lock lock, int count) throws Exception {
        lock.acquire();
        long start = System.nanoTime();
        for (int left = count; left > 0; left--) {
            lock.acquire();
            lock.release();
        }
        long taken = System.nanoTime() - start;
        lock.release();
        return String.valueOf(taken);
    }

    private static String tries(Lock lock, int count) throws Exception {
        StringBuilder taken = new StringBuilder();
        for (int left = count; left > 0; left--) {
            long start = System.nanoTime();
            if (lock.tryAcquire()) {
                throw new IllegalStateException("a try succeeded, though somebody holds");
            }
            taken.append(System.nanoTime() - start).append(' ');
        }
        return taken.toString().trim();
    }

    private void join(Lock lock, int hold) {
        ConcurrentLinkedQueue<String> log = this.log;
        Thread thread = new Thread(() -> {
            try {
                while (!closing) {
                    long asked = System.nanoTime();
                    lock.acquire();
                    long acquired = System.nanoTime();
                    if (hold > 0) {
                        TimeUnit.MICROSECONDS.sleep(hold);
                    }
                    running.await();
                    long released = System.nanoTime();
                    log.add(asked + ":" + acquired + ":" + released);
                    lock.release();
                }
            } catch (Exception closed) {
                // its session is gone, or it was interrupted, which is how it ends
            }
        });
        thread.setDaemon(true);
        threads.add(thread);
        thread.start();
    }

    private Lock lock(String kind, String path) throws Exception {
        Lock lock = locks.get(kind + path);
        if (lock == null) {
            lock = make(clients.get(0), kind, path);
            locks.put(kind + path, lock);
        }
        return lock;
    }

    private static Lock make(CuratorFramework client, String kind, String path) throws Exception {
        switch (kind) {
            case "lock":
            case "rlock":
                return new Mutex(new InterProcessMutex(client, path));
            case "read":
                return new Mutex(new InterProcessReadWriteLock(client, path).readLock());
            case "write":
                return new Mutex(new InterProcessReadWriteLock(client, path).writeLock());
            case "put":
                return new Putter(client, path);
            case "get":
                return new Taker(client, path, false);
            case "claim":
                return new Taker(client, path, true);
            case "add":
                return new Adder(client, path);
            case "entry":
                return new Entry(client, path);
            case "lead":
                return new Leader(client, path);
            case "semaphore":
                return new Permit(new InterProcessSemaphoreV2(client, path, 1));
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private interface Lock {
        void acquire() throws Exception;

        boolean tryAcquire() throws Exception;

        void release() throws Exception;
    }

    private static final class Mutex implements Lock {
        private final InterProcessMutex mutex;

        Mutex(InterProcessMutex mutex) {
            this.mutex = mutex;
        }

        public void acquire() throws Exception {
            mutex.acquire();
        }

        public boolean tryAcquire() throws Exception {
            return mutex.acquire(0, TimeUnit.MILLISECONDS);
        }

        public void release() throws Exception {
            mutex.release();
        }
    }

    /** Adds one to a number, in the order of a lock after some conflicts. */
    private static final class Adder implements Lock {
        private final DistributedAtomicLong number;

        Adder(CuratorFramework client, String path) {
            PromotedToLock lock =
                    PromotedToLock.builder().lockPath(path + "/lock").retryPolicy(new RetryNTimes(100, 1)).build();
            number = new DistributedAtomicLong(client, path, new RetryNTimes(3, 1), lock);
        }

        public void acquire() throws Exception {
            while (!number.increment().succeeded()) {
                Thread.yield();
            }
        }

        public boolean tryAcquire() {
            throw new UnsupportedOperationException();
        }

        public void release() {}
    }

    /** Reads one of a hundred entries from a cache. */
    private static final class Entry implements Lock {
        private final CuratorCache cache;
        private final String node;
        private byte[] last; // read, so that the compiler can't leave the read out

        Entry(CuratorFramework client, String path) throws Exception {
            for (int number = 0; number < 100; number++) {
                client.create().creatingParentsIfNeeded().forPath(path + "/key-" + number, new byte[100]);
            }
            node = path + "/key-99";
            CountDownLatch ready = new CountDownLatch(1);
            cache = CuratorCache.build(client, path);
            cache.listenable().addListener(
                    CuratorCacheListener.builder().forInitialized(ready::countDown).build());
            cache.start();
            ready.await();
        }

        public void acquire() {
            last = cache.get(node).get().getData();
        }

        public boolean tryAcquire() {
            throw new UnsupportedOperationException();
        }

        public void release() {}
    }

    /** Stands until it leads; gives that up. */
    private static final class Leader implements Lock {
        private final CuratorFramework client;
        private final String path;
        private LeaderLatch latch;

        Leader(CuratorFramework client, String path) {
            this.client = client;
            this.path = path;
        }

        public void acquire() throws Exception {
            latch = new LeaderLatch(client, path);
            latch.start();
            latch.await();
        }

        public boolean tryAcquire() {
            throw new UnsupportedOperationException();
        }

        public void release() throws Exception {
            latch.close();
        }
    }

    private static final QueueSerializer<byte[]> BYTES = new QueueSerializer<byte[]>() {
        public byte[] serialize(byte[] item) {
            return item;
        }

        public byte[] deserialize(byte[] bytes) {
            return bytes;
        }
    };

    /** Puts an item, and waits until it is there: `put` alone returns before. */
    private static final class Putter implements Lock {
        private final byte[] item = new byte[100];
        private final DistributedQueue<byte[]> queue;

        Putter(CuratorFramework client, String path) throws Exception {
            queue = QueueBuilder.builder(client, null, BYTES, path + "/items").lockPath(path + "/claims").buildQueue();
            queue.start();
        }

        public void acquire() throws Exception {
            queue.put(item);
            queue.flushPuts(10, TimeUnit.SECONDS);
        }

        public boolean tryAcquire() {
            throw new UnsupportedOperationException();
        }

        public void release() {}
    }

    /** Takes an item from Curator's consumer, which is called with it, and lets that return; with locks, or without. */
    private static final class Taker implements Lock, QueueConsumer<byte[]> {
        private final SynchronousQueue<Boolean> taken = new SynchronousQueue<>();
        private final SynchronousQueue<Boolean> done = new SynchronousQueue<>();

        Taker(CuratorFramework client, String path, boolean locks) throws Exception {
            QueueBuilder<byte[]> builder = QueueBuilder.builder(client, this, BYTES, path + "/items");
            (locks ? builder.lockPath(path + "/claims") : builder).buildQueue().start();
        }

        public void consumeMessage(byte[] item) throws Exception {
            taken.put(true);
            done.take();
        }

        public void stateChanged(CuratorFramework client, ConnectionState state) {}

        public void acquire() throws Exception {
            taken.take();
        }

        public boolean tryAcquire() {
            throw new UnsupportedOperationException();
        }

        public void release() throws Exception {
            done.put(true);
        }
    }

    private static final class Permit implements Lock {
        private final InterProcessSemaphoreV2 semaphore;
        private final ThreadLocal<Lease> own = new ThreadLocal<>();

        Permit(InterProcessSemaphoreV2 semaphore) {
            this.semaphore = semaphore;
        }

        public void acquire() throws Exception {
            own.set(semaphore.acquire());
        }

        public boolean tryAcquire() throws Exception {
            Lease lease = semaphore.acquire(0, TimeUnit.MILLISECONDS);
            own.set(lease);
            return lease != null;
        }

        public void release() {
            semaphore.returnLease(own.get());
        }
    }
}
