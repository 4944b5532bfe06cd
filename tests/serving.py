"""Health and metrics of a server as its clients see them, in one process or on Ray, and clients that hang up."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import requests


def health(url: str) -> int:
    """Status of /health; 0 if nothing listens."""
    try:
        return requests.get(f"{url}/health", timeout=10).status_code
    except requests.ConnectionError:
        return 0


def become_health(status: int, url: str, seconds: float) -> bool:
    """Whether /health gives a status within some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if health(url) == status:
            return True
        time.sleep(0.02)
    return False


def metrics(url: str) -> str:
    return requests.get(f"{url}/metrics", timeout=10).text


def hang_up(url: str, body: Any, seconds: Sequence[float]) -> None:
    """Ask, and go after each number of seconds; wait until the server has counted them as clients that have gone."""
    for patience in seconds:
        with suppress(requests.Timeout):
            requests.post(f"{url}/embed", json=body, timeout=patience)
    until, text = time.monotonic() + 20, ""
    while 'status="499"' not in text and time.monotonic() < until:
        text = metrics(url)
        time.sleep(0.05)
    assert 'bertstream_requests_total{route="/embed",status="499"}' in text
    assert 'status="5' not in text
