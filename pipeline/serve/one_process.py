"""Serve a model from this process: an HTTP server in the main thread, and one thread that computes. No Ray."""

import asyncio
import logging
import math
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from pipeline.config.serve import Serve
from pipeline.embed.model import use_threads
from pipeline.errors import ConfigError
from pipeline.reporting import Report, no_op
from pipeline.serve.http import build_app
from pipeline.serve.model import Refused, ServedModel, describe, load_here
from pipeline.serve.problems import RequestError, late, overloaded
from pipeline.serve.replica import Replica
from pipeline.serve.uses import HELD, Inputs
from pipeline.train.hardware import cores

LOG = logging.getLogger(__name__)
IDLE_SECONDS = 90
"""Seconds for which a connection without requests is kept, as by Ray Serve."""


class OneProcess:
    """The model of this process, with the limits of Ray Serve's queue."""

    def __init__(self, config: Serve, served: ServedModel) -> None:
        self.config, self.described = config, describe(served, config)
        self.replica = Replica(config, threads_of(config), lambda: served)
        self.waiting = 0

    def app(self, token: str | None) -> ASGIApp:
        """Return the application; `token` as in `build_app`."""
        return build_app(self.described, self.config, self.ask, token, _alive)

    async def ask(self, request: Inputs) -> list[Any] | Refused:
        """Return the model's answer. Raises RequestError if there is none in time, or if too many requests wait."""
        limits = self.config.limits
        if self.waiting >= HELD + limits.waiting:
            raise overloaded()
        self.waiting += 1
        try:
            async with asyncio.timeout(limits.seconds):
                return await self.replica.ask(request)
        except TimeoutError as error:
            raise late(limits.seconds) from error
        except Exception as error:
            LOG.exception("the model failed")
            raise RequestError(
                500, "Backend", f"the model failed: {type(error).__name__}; the server's logs say why"
            ) from error
        finally:
            self.waiting -= 1


async def _alive() -> bool:
    """Answer /health. It runs where requests are taken, and does not wait for the batches."""
    return True


def threads_of(config: Serve) -> int:
    """Return the CPU threads that compute. Raises ConfigError for more CPUs than this machine has."""
    if config.cpus is not None and config.cpus > cores():
        raise ConfigError(
            f"cpus ({config.cpus:g}) is more than the {cores()} cores of this machine: lower it, or serve on a cluster "
            "(placement.address)"
        )
    return config.placement.threads or max(1, int(config.cpus or cores()))


def load_model(config: Serve) -> ServedModel:
    """Load the model in this thread, which Ctrl-C interrupts, for the thread that will compute."""
    # OpenMP threads of this thread would slow those of the other one (see Replica). onnxruntime has threads of its own.
    use_threads(threads_of(config) if config.onnx else 1)
    return load_here(config)


class _Server(uvicorn.Server):
    """uvicorn's server, which says what it waits for when it is stopped."""

    def __init__(self, config: uvicorn.Config, process: OneProcess, report: Report) -> None:
        super().__init__(config)
        self.process, self.report = process, report

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if count := self.process.waiting:
            self.report(f"stopping: {count} accepted {'request is' if count == 1 else 'requests are'} answered first")
        await super().shutdown(sockets)


def server_of(process: OneProcess, token: str | None, report: Report = no_op) -> uvicorn.Server:
    """Return the HTTP server of a model.

    When it is stopped, it accepts nothing more and answers what it has accepted, at most for limits.seconds.
    """
    config = uvicorn.Config(
        process.app(token),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=math.ceil(process.config.limits.seconds),
    )
    return _Server(config, process, report)
