"""Compares the asyncio storages of limits: Weir's in memory, Weir's on Redis, and redis-py on the same Redis, in turns.

For each of them it prints hits a second and this process's CPU time for a hit: the median of the rounds, and the ratio to redis-py.
"""

import asyncio
import os
import re
import socket
import statistics
import subprocess
import tempfile
import time

from limits import parse
from limits.aio.strategies import FixedWindowRateLimiter
from limits.storage import storage_from_string

import weir.limits  # noqa: F401

ROUNDS, HITS, TASKS, KEYS = 7, 10000, 50, 100


async def measure(limiter):
    item = parse("100000000/hour")

    async def work(task):
        for i in range(HITS // TASKS):
            assert await limiter.hit(item, f"user:{(task + i) % KEYS}")
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work(task) for task in range(TASKS)))
    return HITS / (time.perf_counter() - began), (time.process_time() - cpu) / HITS * 1e6


async def compare(urls):
    limiters = {name: FixedWindowRateLimiter(storage_from_string(url, **options)) for name, (url, options) in urls.items()}
    found = {name: [] for name in urls}
    for _ in range(ROUNDS):
        for name, limiter in limiters.items():
            found[name].append(await measure(limiter))
    base_rate, base_cpu = (statistics.median(values) for values in zip(*found["redis-py"]))
    print(f"{'':16} {'hits/s':>8} {'ratio':>6} {'CPU µs':>8} {'ratio':>6}")
    for name, rounds in found.items():
        rate, cpu = (statistics.median(values) for values in zip(*rounds))
        print(f"{name:16} {rate:8.0f} {rate / base_rate:6.2f} {cpu:8.1f} {cpu / base_cpu:6.2f}")


def serve(store):
    process = subprocess.Popen(
        [os.environ["WEIR"], "serve", "--store", store, "--http", "127.0.0.1:0", "--grpc", "off", "--admin", "off", "--resp", "127.0.0.1:0",
         "--log-level", "error"], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if found := re.match(r"resp (\S+)", line):
            return process, "async+weir://" + found[1]
    raise RuntimeError("weir ended")


def main():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        redis = subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
        memory, shared = serve("memory"), serve(f"redis://127.0.0.1:{port}/0")
        time.sleep(1)
        try:
            asyncio.run(compare({
                "redis-py": (f"async+redis://127.0.0.1:{port}/1", {"implementation": "redispy"}),
                "Weir, memory": (memory[1], {"timeout": 10}),
                "Weir on Redis": (shared[1], {"timeout": 10}),
            }))
        finally:
            for process in (memory[0], shared[0], redis):
                process.terminate()
                process.wait(30)


if __name__ == "__main__":
    main()
