import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Base64;
import java.util.concurrent.Executors;

/** Answers lines for bucket4j: the address of Redis, units, burst, seconds. */
public class Child {
  public static void main(String[] args) throws Exception {
    long units = Long.parseLong(args[1]);
    long burst = Long.parseLong(args[2]);
    Duration period = Duration.ofSeconds(Long.parseLong(args[3]));
    var limit = BucketConfiguration.builder().addLimit(l -> l.capacity(burst).refillGreedy(units, period)).build();
    var proxies =
        Bucket4jLettuce.casBasedBuilder(RedisClient.create("redis://" + args[0]))
            .expirationAfterWrite(
                ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(Duration.ofSeconds(10)))
            .build();
    var pool = Executors.newFixedThreadPool(32);
    print("ready");
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = lines.readLine()) != null; ) {
      String[] call = line.split(" ");
      pool.submit(
          () -> {
            try {
              var bucket = proxies.builder().build(Base64.getDecoder().decode(call[1]), () -> limit);
              var answer = bucket.tryConsumeAndReturnRemaining(Long.parseLong(call[2]));
              double wait = answer.getNanosToWaitForRefill() / 1e6;
              print(call[0] + (answer.isConsumed() ? " granted 0" : " refused " + wait));
            } catch (Throwable e) {
              print(call[0] + " error " + e.toString().replaceAll("\\s+", " "));
            }
          });
    }
    System.exit(0);
  }

  static synchronized void print(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
