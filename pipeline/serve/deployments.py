"""Ray Serve deployments: replicas that hold the model and compute batches, and an ingress that speaks HTTP."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from pipeline.config.serve import TOKEN, Serve
from pipeline.embed.model import use_threads
from pipeline.serve.http import build_app
from pipeline.serve.model import Refused, load_described
from pipeline.serve.problems import overloaded, unavailable
from pipeline.serve.uses import Description, Inputs

ATTEMPTS = 2
"""Times that a request is asked: again once if the replica that had it has died."""
BATCHES = 3
"""Batches whose requests a replica holds: those that it computes, and those that it collects meanwhile."""
LEAST_TOKENS = 8
"""Tokens of a short request, to estimate how many requests fill a batch."""
INGRESS_REQUESTS = 10_000
"""Maximum requests in the ingress. It is high because the ingress itself refuses requests, by limits.waiting."""


def _tokens(requests: Sequence[Inputs]) -> int:
    """Return the tokens of requests, which decide whether they are computed together."""
    return sum(request.tokens for request in requests)


class Replica:
    """A process that holds the model."""

    def __init__(self, config: Serve, described: Description) -> None:
        use_threads(config.placement.threads or max(1, int(config.cpus)))
        self.model = load_described(described, config)
        self._together.set_max_batch_size(config.batching.tokens)
        self._together.set_batch_wait_timeout_s(config.batching.wait)

    @serve.batch(batch_size_fn=_tokens)
    async def _together(self, requests: list[Inputs]) -> list[list[Any] | Refused]:
        return await asyncio.to_thread(self.model.answer_all, requests)

    async def ask(self, request: Inputs) -> list[Any] | Refused:
        """Return the answers to a request's rows, which may be computed together with those of other requests."""
        return await self._together(request)


class Ingress:
    """The process that reads requests, checks them and passes them to replicas."""

    def __init__(self, config: Serve, described: Description, replicas: DeploymentHandle) -> None:
        self.config, self.described, self.replicas = config, described, replicas

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return build_app(self.described, self.config, self.ask, os.environ.get(TOKEN))

    async def ask(self, request: Inputs) -> list[Any] | Refused:
        """Return the replicas' answer. Raises RequestError if there is none in time."""
        try:
            return await asyncio.wait_for(self._ask(request), self.config.limits.seconds)
        except TimeoutError as error:
            raise unavailable(f"no answer within {self.config.limits.seconds:g} seconds (limits.seconds)") from error

    async def _ask(self, request: Inputs) -> list[Any] | Refused:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self.replicas.ask.remote(request)
            except BackPressureError as error:
                raise overloaded() from error
            except (RayActorError, DeploymentUnavailableError) as error:
                if attempt == ATTEMPTS:
                    raise unavailable("the replica that had this request has died: ask again") from error
        raise AssertionError("unreachable")


def application(config: Serve, described: Description) -> serve.Application:
    """Return the application of a described model, to be run by Ray Serve."""
    held = BATCHES * max(1, config.batching.tokens // LEAST_TOKENS)
    replicas = serve.deployment(
        Replica,
        name="model",
        num_replicas=config.replicas,
        ray_actor_options={"num_cpus": config.cpus, "num_gpus": config.gpus},
        max_ongoing_requests=min(held, max(1, config.limits.waiting // config.replicas)),
        max_queued_requests=config.limits.waiting,
    )
    ingress = serve.deployment(
        serve.ingress()(Ingress),
        name="http",
        ray_actor_options={"num_cpus": 0, "runtime_env": {"env_vars": _token()}},
        max_ongoing_requests=INGRESS_REQUESTS,
    )
    return ingress.bind(config, described, replicas.bind(config, described))


def _token() -> dict[str, str]:
    """Return the environment variable of the token, if it is set, for the process of the ingress."""
    return {TOKEN: os.environ[TOKEN]} if os.environ.get(TOKEN) else {}
