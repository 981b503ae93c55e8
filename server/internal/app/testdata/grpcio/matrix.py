"""Usage: python3 matrix.py ADDRESS

Calls Weir with grpcio in every way, and prints a line for what went wrong. Then it calls all the
time, says "ready", and goes on until its standard input ends.
"""

import sys
import threading

import grpc

ADDRESS = sys.argv[1]
DECIDE = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit'
CHECK = '/grpc.health.v1.Health/Check'
WATCH = '/grpc.health.v1.Health/Watch'
REFLECT = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
Code = grpc.StatusCode


def field(number, content):
    length, n = [], len(content)
    while n > 127:
        length.append(n & 127 | 128)
        n >>= 7
    return bytes([number << 3 | 2, *length, n]) + content


def request(descriptors, size):
    """Ask for so many descriptors with values of a size."""
    entry = field(1, b'free') + field(2, b'x' * size)
    return field(1, b'clients') + field(2, field(1, entry)) * descriptors


SMALL, LARGE = request(1, 1), request(12, 16384)
failed = False


def complain(text):
    global failed
    failed = True
    print(text, flush=True)


def want(name, ended, *codes):
    """Wait for a call, or for the end of a stream, and compare its status."""
    if ended.code() not in (codes or (Code.OK,)):
        complain(f'{name}: {ended.code()} {ended.details()}, want {codes}')


def call(channel, path, message=SMALL, timeout=20, **options):
    """Begin a call."""
    return channel.unary_unary(path).future(message, timeout=timeout, **options)


def matrix(name, channel, **options):
    for _ in range(100):
        want(f'{name}, one after another', call(channel, DECIDE, **options))
    for begun in [call(channel, DECIDE, **options) for _ in range(1000)]:
        want(f'{name}, many', begun)
    for begun in [call(channel, DECIDE, LARGE, **options) for _ in range(32)]:
        want(f'{name}, large', begun)
    want(f'{name}, too large', call(channel, DECIDE, request(20, 16384), **options), Code.OK)
    want(f'{name}, wrong', call(channel, DECIDE, b'', **options), Code.INVALID_ARGUMENT)
    want(f'{name}, unknown', call(channel, '/a.B/C', **options), Code.UNIMPLEMENTED)
    want(f'{name}, check', call(channel, CHECK, b'', **options))
    want(f'{name}, deadline', call(channel, DECIDE, timeout=-1, **options), Code.DEADLINE_EXCEEDED)
    metadata = [(f'x-text-{i}', 'v' * 100) for i in range(50)] + [('x-bytes-bin', bytes([0, 1, 255]))]
    want(f'{name}, metadata', call(channel, DECIDE, metadata=metadata, **options))

    watched = channel.unary_stream(WATCH)(b'', timeout=20, **options)
    first = next(watched)
    if first != b'\x08\x01':
        complain(f'{name}, watch: {first.hex()}')
    watched.cancel()
    want(f'{name}, watch', watched, Code.CANCELLED)
    reflected = channel.stream_stream(REFLECT)(iter([field(7, b'*')] * 20), timeout=20, **options)
    answers = list(reflected)
    want(f'{name}, reflection', reflected)
    if len(answers) != 20 or b'envoy.service.ratelimit.v3.RateLimitService' not in answers[19]:
        complain(f'{name}, reflection: {len(answers)} answers')


def forever(ends):
    """Call until the end."""
    options = [('grpc.initial_reconnect_backoff_ms', 100), ('grpc.min_reconnect_backoff_ms', 100), ('grpc.max_reconnect_backoff_ms', 100)]
    calls = 0
    lock = threading.Lock()

    def caller(channel):
        nonlocal calls
        while not ends.is_set():
            want('while the server restarts', call(channel, DECIDE, wait_for_ready=True))
            with lock:
                calls += 1
                if calls == 16:
                    print('ready', flush=True)

    with grpc.insecure_channel(ADDRESS, options) as channel:
        callers = [threading.Thread(target=caller, args=(channel,)) for _ in range(16)]
        for each in callers:
            each.start()
        for each in callers:
            each.join()
    print('all answered' if calls >= 16 and not failed else 'failed', flush=True)


def main():
    with grpc.insecure_channel(ADDRESS) as channel:
        matrix('plain', channel)
        matrix('zipped', channel, compression=grpc.Compression.Gzip)
    ends = threading.Event()
    thread = threading.Thread(target=forever, args=(ends,))
    thread.start()
    sys.stdin.read()
    ends.set()
    thread.join()


main()
