"""Answers lines for limits: the window, the address of Redis, units, seconds."""
import base64
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from limits import RateLimitItemPerSecond, storage, strategies

kind, address, units, seconds = sys.argv[1:5]
store = storage.RedisStorage("redis://" + address)
limiter = {"fixed": strategies.FixedWindowRateLimiter, "moving": strategies.MovingWindowRateLimiter}[kind](store)
limit = RateLimitItemPerSecond(int(units), int(seconds))
lock = threading.Lock()


def answer(number, key, cost):
    try:
        name = base64.b64decode(key).decode("latin1")
        if limiter.hit(limit, name, cost=int(cost)):
            text = "granted 0"
        else:
            text = "refused %f" % max(0, (limiter.get_window_stats(limit, name).reset_time - time.time()) * 1000)
    except Exception as e:
        text = "error " + " ".join(repr(e).split())
    with lock:
        print(number, text, flush=True)


pool = ThreadPoolExecutor(32)
print("ready", flush=True)
for line in sys.stdin:
    pool.submit(answer, *line.split())
