"""Metrics of a server in Prometheus' text format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["CONTENT_TYPE_LATEST", "Measures"]
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384, 65_536)


class Measures:
    """Counts and durations of requests since the server began."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "bertstream_requests", "Requests by route and status", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "bertstream_request_seconds",
            "Seconds from a request's arrival to its answer",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.tokens = Histogram(
            "bertstream_request_tokens", "Tokens per request", ["route"], buckets=TOKENS, registry=self.registry
        )
        self.waiting = Gauge("bertstream_requests_in_progress", "Requests not answered yet", registry=self.registry)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
