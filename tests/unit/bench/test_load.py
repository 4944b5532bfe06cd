"""The open loop: as many requests as the process has, at its times, whatever the server does."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.bench.load import Load, at_random, in_turns


@contextmanager
def server(seconds: float, status: int = 200, together: int = 100) -> Iterator[tuple[str, list[dict[str, int]]]]:
    """Run a server that takes `seconds` seconds per request, for `together` requests at the same time."""
    asked: list[dict[str, int]] = []
    room = threading.Semaphore(together)

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            with room:
                time.sleep(seconds)
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    running = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", asked
    finally:
        running.shutdown()
        running.server_close()


def test_percentiles_and_rates_by_hand() -> None:
    load = Load(latencies=[0.1, 0.2, 0.3, 0.4, 0.5], seconds=2.0, failed=1)
    assert load.per_second == 2.5 and load.percentile(50) == pytest.approx(300) and load.percentile(100) == 500
    assert Load(latencies=[], seconds=1.0, failed=3).percentile(50) == float("inf")


def test_random_times_do_not_wait_for_answers() -> None:
    with server(0.3) as (url, asked):
        load = at_random(url, [{"n": 0}, {"n": 1}], 1.0, 40.0)
    assert 20 <= len(asked) <= 62 and load.failed == 0 and len(load.latencies) == len(asked)
    assert 300 <= load.percentile(50) < 1_000 and {body["n"] for body in asked} == {0, 1}


def test_a_queue_counts_from_the_time_at_which_a_request_was_due() -> None:
    with server(0.1, together=1) as (url, _):  # it takes 10 requests per second, and gets 20
        load = at_random(url, [{"n": 0}], 1.0, 20.0)
    assert load.percentile(99) > 400


def test_failures_are_counted_and_have_no_latency() -> None:
    with server(0.0, status=503) as (url, asked):
        load = in_turns(url, [{"n": 0}], 0.2, 2)
    assert load.failed == len(asked) > 0 and load.latencies == []


def test_clients_wait_for_their_answers() -> None:
    with server(0.1) as (url, asked):
        load = in_turns(url, [{"n": 0}], 0.35, 3)
    assert 3 <= len(asked) <= 12 and load.per_second < 31


def test_equal_seeds_give_equal_times() -> None:
    def count() -> int:
        with server(0.0) as (url, asked):
            at_random(url, [{"n": 0}], 0.3, 50.0, seed=3)
            return len(asked)

    assert count() == count() > 0
