"""Ray Serve deployments: replicas that hold the model and compute batches, and an ingress that speaks HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ray import serve
from ray.exceptions import RayActorError, RayError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from pipeline.config.serve import Serve
from pipeline.on_ray.ray_private import replica_checks
from pipeline.serve.health import Health
from pipeline.serve.http import build_app
from pipeline.serve.model import Refused, load_described
from pipeline.serve.problems import RequestError, disconnected, late, overloaded, unavailable
from pipeline.serve.replica import Replica
from pipeline.serve.uses import HELD, Inputs, ServedDescription

MODEL = "model"
"""Name of the deployment of replicas."""
ATTEMPTS = 2
"""Times that a request is asked: again once if the replica that had it has died."""
GONE = (RayActorError, DeploymentUnavailableError)
"""Errors of a replica that has died."""
INGRESS_REQUESTS = 10_000
"""Maximum requests in the ingress. It is high because the replicas' queue refuses requests, by limits.waiting."""
QUIET = {"enable_access_log": False}
"""Logging of deployments. A line per request would cost time, and /metrics counts the requests."""


class RayReplica:
    """A process that holds the model."""

    def __init__(self, config: Serve, described: ServedDescription) -> None:
        threads = config.placement.threads or max(1, int(config.cpus_of_replica))
        self.replica = Replica(config, threads, lambda: load_described(described, config))

    async def ask(self, request: Inputs) -> list[Any] | Refused:
        """Return the replica's answers."""
        return await self.replica.ask(request)

    async def check_health(self) -> None:
        """Answer Ray Serve and /health. It runs where requests are taken, and does not wait for the batches."""


class Ingress:
    """The process that reads requests, checks them and passes them to replicas."""

    def __init__(
        self, config: Serve, described: ServedDescription, replicas: DeploymentHandle, token: str | None
    ) -> None:
        """`token`: SHA-256 of the token that clients send, hexadecimal; None: they need none."""
        self.config, self.described, self.replicas, self.token = config, described, replicas, token
        self.health = Health(lambda: [_answers(check) for check in replica_checks(replicas.app_name, MODEL)])

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return build_app(self.described, self.config, self.ask, self.token, self.health.alive)

    async def ask(self, request: Inputs) -> list[Any] | Refused:
        """Return the replicas' answer. Raises RequestError if there is none in time."""
        return await answer_of(self.replicas.ask.remote, request, self.config.limits.seconds)


async def answer_of(
    ask: Callable[[Inputs], Awaitable[list[Any] | Refused]], request: Inputs, seconds: float
) -> list[Any] | Refused:
    """Return the answer of a replica, asked again once if it dies. `ask` returns a response of Ray Serve.

    Raises RequestError after `seconds` seconds, if too many requests wait, if the replicas fail, or if the client has
    gone: Ray may cancel the replica's part of a request sooner than the ingress's.
    """
    try:
        async with asyncio.timeout(seconds):
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    return await _response(ask(request))
                except GONE as error:
                    if attempt == ATTEMPTS:
                        raise unavailable("the replica that had this request has died: ask again") from error
            raise AssertionError("unreachable")
    except TimeoutError as error:
        raise late(seconds) from error
    except BackPressureError as error:
        raise overloaded() from error
    except TaskCancelledError as error:
        raise disconnected() from error
    except (RayError, RayServeException) as error:
        raise RequestError(
            500, "Backend", f"the model failed: {type(error).__name__}; the server's logs say why"
        ) from error


async def _response(response: Any) -> list[Any] | Refused:
    """Await a response of Ray Serve. If the wait is cancelled, so is the request, which would be computed otherwise."""
    try:
        return await response
    except asyncio.CancelledError:
        if hasattr(response, "cancel"):
            response.cancel()
        raise


async def _answers(check: Awaitable[None]) -> bool:
    """Return whether a replica answers; False if it has died or still loads the model."""
    try:
        await check
    except RayError:
        return False
    return True


def application(config: Serve, described: ServedDescription, token: str | None) -> serve.Application:
    """Return the application of a described model, to be run by Ray Serve; `token` as in Ingress."""
    replicas = serve.deployment(
        RayReplica,
        name=MODEL,
        num_replicas=config.replicas,
        ray_actor_options={"num_cpus": config.cpus_of_replica, "num_gpus": config.gpus},
        logging_config=QUIET,
        max_ongoing_requests=HELD,
        max_queued_requests=config.limits.waiting,
    )
    ingress = serve.deployment(
        serve.ingress()(Ingress),
        name="http",
        ray_actor_options={"num_cpus": 0},
        logging_config=QUIET,
        max_ongoing_requests=INGRESS_REQUESTS,
    )
    return ingress.bind(config, described, replicas.bind(config, described), token)
