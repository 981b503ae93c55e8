"""Stops Redis, then Weir, under applications of Flask-Limiter and slowapi: no answer is a 500, and the limit holds."""

import collections
import os
import re
import socket
import subprocess
import time

import pytest

LIMIT = 40
HEADERS = ["X-RateLimit-Remaining"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def end(process):
    process.terminate()
    process.wait(30)


@pytest.fixture
def redis(tmp_path):
    port = free_port()
    process = subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    process.port = port
    yield process
    if process.poll() is None:
        end(process)


@pytest.fixture
def server(redis):
    process = subprocess.Popen(
        [os.environ["WEIR"], "serve", "--store", f"redis://127.0.0.1:{redis.port}/0", "--http", "127.0.0.1:0", "--grpc", "off",
         "--admin", "off", "--resp", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if found := re.match(r"resp (\S+)", line):
            process.url = "weir://" + found[1]
            break
    for line in process.stderr:
        if '"serving"' in line:
            break
    yield process
    if process.poll() is None:
        end(process)


def flask_limiter(url):
    from flask import Flask
    from flask_limiter import Limiter
    app = Flask(__name__)
    limiter = Limiter(lambda: "all", app=app, storage_uri=url, storage_options={"timeout": 2.0}, headers_enabled=True)

    @app.get("/<name>")
    @limiter.limit(f"{LIMIT}/hour", key_func=lambda: __import__("flask").request.path)
    def view(name):
        return name
    client = app.test_client()
    return lambda path: client.get(path).status_code


def slowapi(url):
    from fastapi import FastAPI, Request, Response
    from fastapi.testclient import TestClient
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    app = FastAPI()
    app.state.limiter = limiter = Limiter(lambda request: request.url.path, storage_uri=url, storage_options={"timeout": 2.0}, headers_enabled=True)
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)

    @app.get("/{name}")
    @limiter.limit(f"{LIMIT}/hour")
    def view(name: str, request: Request, response: Response):
        return name
    client = TestClient(app, raise_server_exceptions=False)
    return lambda path: client.get(path).status_code


@pytest.mark.parametrize("application", [flask_limiter, slowapi])
def test_no_500(application, redis, server, monkeypatch):
    get = application(server.url)

    def statuses(path):
        return collections.Counter(get(path) for _ in range(2 * LIMIT))
    assert statuses("/before") == {200: LIMIT, 429: LIMIT}
    end(redis)
    # Half of the limit: the server decides as if another instance did the same.
    during = statuses("/redis")
    assert set(during) <= {200, 429} and 0 < during[200] <= LIMIT, during
    end(server)
    during = statuses("/weir")
    assert during == {200: LIMIT // 2, 429: 2 * LIMIT - LIMIT // 2}
