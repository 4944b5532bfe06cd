"""Compare `serve` with sentence-transformers behind FastAPI: requests per second, and how long each takes."""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from pipeline.bench.load import Load, at_random, in_turns
from pipeline.config.bench import Serve
from pipeline.embed.loaded import load as load_encoder
from pipeline.errors import ConfigError
from pipeline.train.hardware import cores

PEER, OURS, UNBATCHED = "sentence-transformers", "ours", "ours, unbatched"
LENGTHS = (16, 128)
"""Tokens per request, unless the settings name others."""
START_SECONDS = 180.0
"""Seconds that a server may take to start."""
CLIENTS = 32
"""Clients that ask at the same time, to find the load that a server takes."""
BODIES = 64
"""Distinct requests, used in rotation."""
COLUMNS = ("alone/s", "p50", "p99", "full/s", "half: p50", "p99", "p99/p50", "fixed: p50", "p99", "failed")
"""Columns of the table. The aim of p99/p50 is at most 3."""
BERTSTREAM = "import sys; from pipeline.command_line.main import main; sys.exit(main(sys.argv[1:]))"


def _bodies_of(checkpoint: str, tokens: int) -> list[dict[str, Any]]:
    """Return requests of one text each. The texts have exactly `tokens` tokens with special tokens, drawn by a seed.

    Raises ConfigError if the vocabulary has too few words of one token.
    """
    model = load_encoder(checkpoint, "cpu")
    if not 3 <= tokens <= model.embedding_length:
        raise ConfigError(f"lengths ({tokens}) must lie between 3 and {model.embedding_length}, the model's length")
    words = [word for word in model.vocabulary.tokens if word.isalpha() and word.isascii()][:5_000]
    words = [word for word in words if len(model.tokenize(f"{word} {word}").ids) == 4]
    if not words:
        raise ConfigError(f"checkpoint ({checkpoint}) has a vocabulary without whole words: give another model")
    rng = np.random.default_rng(tokens)
    return [{"inputs": [" ".join(rng.choice(words, tokens - 2))]} for _ in range(BODIES)]


def measure(config: Serve) -> list[tuple[str, int, list[Load]]]:
    """Return (server, tokens per request, loads) of each server and length.

    The loads are: one request at a time, CLIENTS at a time, Poisson at half of that, and Poisson at config.rate.
    """
    requests = {length: _bodies_of(config.checkpoint, length) for length in config.lengths or LENGTHS}
    measured = []
    for name in (OURS, UNBATCHED, PEER) if config.unbatched else (OURS, PEER):
        with _running(name, config) as url:
            for length, bodies in requests.items():
                in_turns(url, bodies, config.seconds / 4, CLIENTS)  # warm-up
                alone, full = (in_turns(url, bodies, config.seconds, clients) for clients in (1, CLIENTS))
                half = at_random(url, bodies, config.seconds, max(full.per_second / 2, 0.1))
                fixed = at_random(url, bodies, config.seconds, config.rate)
                measured.append((name, length, [alone, full, half, fixed]))
    return measured


def table(measured: Sequence[tuple[str, int, list[Load]]]) -> str:
    """Return a line per server and length; latencies are in milliseconds."""
    lines = [f"{'':<24}{'tokens':>8}" + "".join(f"{column:>12}" for column in COLUMNS)]
    for name, length, (alone, full, half, fixed) in measured:
        numbers = (alone.per_second, *_middle_and_late(alone), full.per_second, *_middle_and_late(half))
        rest = (half.percentile(99) / max(half.percentile(50), 1e-3), *_middle_and_late(fixed))
        failed = sum(load.failed for load in (alone, full, half, fixed))
        lines.append(f"{name:<24}{length:>8}" + "".join(f"{one:>12.1f}" for one in (*numbers, *rest)) + f"{failed:>12}")
    return "\n".join(lines)


def _middle_and_late(load: Load) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds."""
    return load.percentile(50), load.percentile(99)


@contextmanager
def _running(name: str, config: Serve) -> Generator[str]:
    """Run a server in a process of its own; yield the URL of its vectors."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryFile("w+") as said:
        command = [sys.executable, *(_peer(config, port) if name == PEER else _ours(config, port, name == UNBATCHED))]
        process = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            _await_health(f"http://127.0.0.1:{port}", name, process)
            yield f"http://127.0.0.1:{port}/embed"
        except ConfigError:
            said.seek(0)
            print(said.read()[-2_000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait()


def _peer(config: Serve, port: int) -> list[str]:
    """Return Python's arguments that start the server of sentence-transformers."""
    return ["-m", "pipeline.bench.peer_server", config.checkpoint, str(port), str(config.threads or cores())]


def _ours(config: Serve, port: int, unbatched: bool) -> list[str]:
    """Return Python's arguments that start our server."""
    options = {
        "--checkpoint": config.checkpoint,
        "--port": str(port),
        "--placement.address": "local",
        "--replicas": str(config.replicas),
        "--placement.threads": str(config.threads or cores()),
        "--placement.precision": config.precision,
        "--placement.device": "cpu",
    } | ({"--batching.tokens": "1", "--batching.wait": "0"} if unbatched else {})
    flags = ["--limits.truncate", *(["--onnx"] if config.onnx else [])]
    return ["-c", BERTSTREAM, "serve", *(word for option in options.items() for word in option), *flags]


def _await_health(url: str, name: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a vector comes. Raises ConfigError if the server ends or takes too long."""
    body = json.dumps({"inputs": ["a text"]}).encode()
    request = urllib.request.Request(f"{url}/embed", body, {"Content-Type": "application/json"})
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(request, timeout=30):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise ConfigError(f"the server of {name} did not start within {START_SECONDS:g} seconds; its last lines are above")
