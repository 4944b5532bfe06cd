"""The HTTP routes of a served model, as a FastAPI application. No Ray: who computes the answers is an argument."""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.config.serve import Serve
from pipeline.files.storage import first_line
from pipeline.serve.bodies import (
    AnswersBody,
    EmbedBody,
    OpenAIBody,
    Pair,
    PredictBody,
    QuestionBody,
    Refusal,
    RerankBody,
    TextsBody,
    name_in,
)
from pipeline.serve.gate import Gate
from pipeline.serve.head import Head
from pipeline.serve.measures import CONTENT_TYPE_LATEST, Measures
from pipeline.serve.model import Refused
from pipeline.serve.problems import DISCONNECTED, RequestError, body_of, invalid, unavailable, wrong_route
from pipeline.serve.reading import Name, RequestReader
from pipeline.serve.uses import COMMON, ENCODER, HELD, OPENAI_ROUTE, SERVED, Inputs, ServedDescription, Use, sigmoid
from pipeline.serve.validation import wrong_body

Alive = Callable[[], Awaitable[bool]]
"""Function that tells whether a replica answers."""
Ask = Callable[[Inputs], Awaitable[list[Any] | Refused]]
"""Function that computes the answers to a request's rows. It raises RequestError if that is not possible."""
SMALL = 2_000
"""Characters to count the tokens of, or numbers to write, that take less time than to pass them to a thread."""
REFUSALS: dict[int | str, dict[str, Any]] = {"4XX": {"model": Refusal, "description": "The request is refused"}}
"""Errors in the OpenAPI document, in place of the framework's own, which are not sent."""
TOP = 5
"""Guesses for a mask token, unless a request asks for another number, as in transformers."""


class Routes:
    """Functions that answer requests, one per route."""

    def __init__(self, described: ServedDescription, config: Serve, ask: Ask, measures: Measures) -> None:
        self.described, self.config, self.ask, self.measures = described, config, ask, measures
        self.reader = RequestReader(described, config)

    async def rows(
        self,
        path: str,
        use: Use,
        rows: Sequence[Any],
        name: Name,
        truncate: bool | None,
        top: int = TOP,
        before: str = "",
    ) -> tuple[list[Any], int]:
        """Return the answers to rows, each of which follows the prompt `before`, and the tokens that were read.

        Raises RequestError if the model is not for this use, or for invalid rows, which `name` names.
        """
        if use not in self.described.uses:
            raise wrong_route(path, self.described.routes, self.described.kind)
        characters = sum(len(part) for row in rows for part in ([row] if isinstance(row, str) else row))
        tokens = await _run(characters, self.reader.count, use, rows, name, truncate, before)
        self.measures.tokens.labels(path).observe(tokens)
        asked = [before + row for row in rows] if before else rows
        answers = await self.ask(Inputs(use=use, rows=asked, tokens=tokens, top=top))
        if isinstance(answers, Refused):
            raise invalid(answers.reason)
        return answers, tokens

    async def _numbers(self, *asked: Any, **options: Any) -> tuple[np.ndarray, int]:
        """Return `rows` with answers as an array. Raises RequestError for numbers that JSON cannot hold."""
        answers, tokens = await self.rows(*asked, **options)
        numbers = np.stack(answers)
        if not np.isfinite(numbers).all():
            raise RequestError(500, "Backend", "the model's output is not finite: check its weights and precision")
        return numbers, tokens

    async def embed(self, body: EmbedBody) -> Response:
        """Return a vector per text."""
        vectors, _ = await self._vectors("/embed", "inputs", body.inputs, body, body.normalize, body.prompt_name)
        return await _json(vectors.size, vectors.tolist)

    async def openai(self, body: OpenAIBody) -> Response:
        """Return a vector per text, in the form of OpenAI's API."""
        self._require_name(body.model)
        vectors, tokens = await self._vectors(OPENAI_ROUTE, "input", body.input, body, True, None)

        def coded() -> dict[str, Any]:
            data = [
                {"object": "embedding", "index": index, "embedding": _coded(vector, body.encoding_format)}
                for index, vector in enumerate(vectors)
            ]
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            return {"object": "list", "data": data, "model": self.described.name, "usage": usage}

        return await _json(vectors.size, coded)

    def models(self) -> dict[str, Any]:
        """List the model, in the form of OpenAI's API."""
        return {"object": "list", "data": [self.model(self.described.name)]}

    def model(self, name: str) -> dict[str, Any]:
        """Describe the model, in the form of OpenAI's API; when it was created is not known."""
        self._require_name(name)
        return {"id": name, "object": "model", "created": 0, "owned_by": "bertstream"}

    def _require_name(self, model: str) -> None:
        """Raise RequestError for the name of another model."""
        if model != self.described.name:
            message = f"model {ascii(model)} is not served here: ask for {self.described.name}"
            raise RequestError(404, "Validation", message, "model_not_found")

    async def _vectors(
        self,
        path: str,
        field: str,
        texts: str | list[str],
        body: EmbedBody | OpenAIBody,
        normalize: bool,
        prompt_name: str | None,
    ) -> tuple[np.ndarray, int]:
        """Return vectors, float32 (texts, dimensions), of the texts in a body's field, and the tokens that were read.

        With body.dimensions, the first numbers of a vector are scaled again.
        """
        before, whole, dimensions = self.described.default_prompt, self.described.dimension, body.dimensions
        if prompt_name is not None:
            prompts = dict(self.described.prompts)
            if prompt_name not in prompts:
                raise invalid(f"prompt_name ({ascii(prompt_name)}) must be one of {', '.join(prompts) or 'none'}")
            before = prompts[prompt_name]
        if dimensions is not None and whole is not None and dimensions > whole:
            raise invalid(f"dimensions ({dimensions}) must be at most {whole}, the numbers of the model's vectors")
        vectors, tokens = await self._numbers(
            path, "embed", _several(texts), name_in(field, texts), body.truncate, before=before
        )
        vectors = vectors[:, :dimensions]
        if normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors, tokens

    async def predict(self, body: PredictBody) -> list[Any]:
        """Return each text's labels with their scores, the highest first; for a number, its value as the score."""
        single, rows = _texts_and_pairs(body.inputs)
        outputs, _ = await self._numbers("/predict", "predict", rows, body.name, body.truncate)
        form = SERVED.get(self.described.kind, ENCODER)
        shares = outputs if body.raw_scores else form.probabilities(outputs)
        labels = self.described.labels or ("score",)
        answers = [
            [{"score": float(row[index]), "label": labels[index]} for index in np.argsort(-row, kind="stable")]
            for row in shares
        ]
        if body.parameters is not None:
            return [best[: body.parameters.top_k] for best in answers]
        return answers[0] if single else answers

    async def rerank(self, body: RerankBody) -> list[dict[str, Any]]:
        """Return the texts' numbers and scores, the highest first."""
        pairs = [(body.query, text) for text in body.texts]
        scores, _ = await self._numbers("/rerank", "rerank", pairs, body.name, body.truncate)
        scores = scores if body.raw_scores else sigmoid(scores)
        return [
            {"index": int(index), "score": float(scores[index])}
            | ({"text": body.texts[index]} if body.return_text else {})
            for index in np.argsort(-scores, kind="stable")
        ]

    async def tags(self, body: TextsBody) -> list[Any]:
        """Return the words of each text with their tags and offsets."""
        name = name_in("inputs", body.inputs)
        answers, _ = await self.rows("/tags", "tags", _several(body.inputs), name, body.truncate)
        return answers[0] if isinstance(body.inputs, str) else answers

    async def answers(self, body: AnswersBody) -> Any:
        """Return each question's best answer, or with top_k above 1 a list of its best answers."""
        asked = [body.inputs] if isinstance(body.inputs, QuestionBody) else body.inputs
        top = body.parameters.top_k or 1
        rows = [(one.question, one.context) for one in asked]
        found, _ = await self.rows("/answers", "answers", rows, body.name, None, top)
        answers = [spans if top > 1 else spans[0] for spans in found]
        return answers[0] if isinstance(body.inputs, QuestionBody) else answers

    async def fill(self, body: TextsBody) -> list[Any]:
        """Return the best words for each text's mask token; a list of lists if a text has several mask tokens."""
        texts, top, name = _several(body.inputs), body.parameters.top_k or TOP, name_in("inputs", body.inputs)
        found, _ = await self.rows("/fill-mask", "fill", texts, name, body.truncate, top)
        if without := [number for number, masks in enumerate(found) if not masks]:
            mask, field = self.reader.mask, name(without[0], None)
            if mask in texts[without[0]]:
                raise invalid(f"{field} has {mask} only in the end that was truncated: send a shorter text")
            raise invalid(f"{field} has no mask token: write {mask} for each missing word")
        answers = [masks[0] if len(masks) == 1 else masks for masks in found]
        return answers[0] if isinstance(body.inputs, str) else answers

    def info(self) -> dict[str, Any]:
        """Describe the model and the limits, with the field names of Text Embeddings Inference where it has them."""
        described, limits = self.described, self.config.limits
        return {
            "model_id": described.name,
            "model_sha": described.digest,
            "model_dtype": described.precision,
            "model_type": {"embedding": {"pooling": described.pooling}}
            if described.uses[0] == "embed"
            else {"classifier": {"labels": list(described.labels), "kind": described.kind}},
            "routes": described.routes,
            "dimension": described.dimension,
            "max_input_length": described.maximum_length,
            "max_batch_tokens": self.config.batching.tokens,
            "max_client_batch_size": limits.texts,
            "max_concurrent_requests": self.config.replicas * HELD + limits.waiting,
            "auto_truncate": limits.truncate,
            "version": version("bertstream"),
        }


def build_app(described: ServedDescription, config: Serve, ask: Ask, token: str | None, alive: Alive) -> ASGIApp:
    """Return the application: routes behind the checks of token and size, with metrics of every request.

    `token`: SHA-256 of the token that clients send, hexadecimal; None: requests need no token.
    """
    app = FastAPI(title="bertstream", version=version("bertstream"), swagger_ui_oauth2_redirect_url=None)
    measures = Measures()
    routes = Routes(described, config, ask, measures)
    _handle_errors(app, described)
    for path, function in (
        ("/embed", routes.embed),
        (OPENAI_ROUTE, routes.openai),
        ("/predict", routes.predict),
        ("/rerank", routes.rerank),
        ("/tags", routes.tags),
        ("/answers", routes.answers),
        ("/fill-mask", routes.fill),
    ):
        app.post(path, response_model=None, responses=REFUSALS)(function)
    app.get("/info", response_model=None)(routes.info)
    app.get("/v1/models", response_model=None)(routes.models)
    app.get("/v1/models/{name:path}", response_model=None, responses=REFUSALS)(routes.model)

    @app.get("/health")
    async def health() -> Response:
        if not await alive():
            raise unavailable("no replica of the model answers")
        return Response(status_code=200)

    app.get("/metrics")(lambda: Response(measures.text(), media_type=CONTENT_TYPE_LATEST))
    known = {getattr(route, "path", "") for route in app.routes}
    return Measured(Gate(Head(app), token, config.limits.body), measures, known)


class Measured:
    """An ASGI application that counts and times the requests of another one."""

    def __init__(self, app: ASGIApp, measures: Measures, known: Collection[str]) -> None:
        """Requests for paths that are not `known` are counted together."""
        self.app, self.measures, self.known = app, measures, known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, path = time.perf_counter(), scope["path"] if scope["path"] in self.known else "other"
        status: int | None = None

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            with self.measures.waiting.track_inprogress():
                await self.app(scope, receive, noting)
        except asyncio.CancelledError:  # Ray Serve cancels the requests of clients that have gone
            status = status or DISCONNECTED
            raise
        finally:
            self.measures.requests.labels(path, str(status or 500)).inc()
            self.measures.seconds.labels(path).observe(time.perf_counter() - begun)


def _handle_errors(app: FastAPI, described: ServedDescription) -> None:
    """Answer errors with the body of the API that the route belongs to."""

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> JSONResponse:
        return JSONResponse(body_of(error, request.url.path), error.status)

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> JSONResponse:
        message = wrong_body(error.errors(), error.body, request.headers.get("content-type"))
        return JSONResponse(body_of(invalid(message), request.url.path), 422)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        """Answer errors of the framework: an unknown route, a wrong method, a body that cannot be decoded."""
        path, status, message, headers = request.url.path, error.status_code, str(error.detail), error.headers
        if status == 404:
            message = f"{path} is no route: there are {', '.join((*described.routes, *COMMON))}"
        elif status == 405:
            methods = set((headers or {}).get("Allow", "").split(", "))
            headers = {"Allow": ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))}
            message = f"{path} does not take {request.method}: use {headers['Allow']}"
        elif error.__cause__ is not None:
            status, message = 422, f"the body is no JSON object in UTF-8: {first_line(error.__cause__)}"
        problem = RequestError(status, "Validation" if status < 500 else "Backend", message)
        return JSONResponse(body_of(problem, path), status, headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        problem = RequestError(500, "Backend", f"the server failed: {type(error).__name__}; its logs say why")
        return JSONResponse(body_of(problem, request.url.path), problem.status)


async def _run(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the function's value for arguments of this size, computed in a thread if it takes long."""
    return function(*arguments) if size <= SMALL else await asyncio.to_thread(function, *arguments)


async def _json(numbers: int, value: Callable[[], Any]) -> Response:
    """Return the JSON of a value with this many numbers. A large one takes a second."""
    content = await _run(numbers, lambda: json.dumps(value(), separators=(",", ":")))
    return Response(content, media_type="application/json")


def _coded(vector: np.ndarray, form: str) -> str | list[float]:
    """Return a vector as a list, or as the base64 of its float32 numbers in little-endian order."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if form == "base64" else vector.tolist()


def _several(inputs: str | list[str]) -> list[str]:
    """Return one text or several as a list."""
    return [inputs] if isinstance(inputs, str) else inputs


def _texts_and_pairs(inputs: str | list[str] | list[list[str]]) -> tuple[bool, list[str | Pair]]:
    """Return whether there is one row, and the rows: a text, or a tuple of two texts."""
    if isinstance(inputs, str):
        return True, [inputs]
    if all(isinstance(one, str) for one in inputs):
        return True, [_row([str(one) for one in inputs])]
    return False, [_row([str(text) for text in one]) for one in inputs]


def _row(texts: list[str]) -> str | Pair:
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])
