"""Requests as clients, proxies and monitors send them: nulls, HEAD, no Content-Type, broken bodies, and hang-ups."""

import asyncio
import gzip
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
import requests
from ray.exceptions import TaskCancelledError
from ray.serve.exceptions import RequestCancelledError

from pipeline.config.serve import Limits, Serve
from pipeline.serve.bodies import AnswersBody
from pipeline.serve.deployments import answer_of
from pipeline.serve.http import Measured
from pipeline.serve.measures import Measures
from pipeline.serve.model import describe_on_cpu
from pipeline.serve.problems import RequestError
from pipeline.serve.uses import Inputs
from pipeline.workflows.serve import started_lines
from tests.unit.serve.test_routes import LONG, post, served

JSON = {"Content-Type": "application/json"}
BODIES: dict[str, dict[str, Any]] = {
    "/embed": {"inputs": "kar"},
    "/v1/embeddings": {"input": "kar", "model": "served"},
    "/predict": {"inputs": ["kar", "lost"]},
    "/rerank": {"query": "kar", "texts": ["lost"]},
    "/tags": {"inputs": "kar"},
    "/answers": {"inputs": {"question": "kar?", "context": "lost"}},
    "/fill-mask": {"inputs": "kar [MASK]"},
}
"""Route -> a body without options."""


@pytest.fixture(scope="module")
def urls(tiny_run: Path, tuned: Callable[..., Serve]) -> Iterator[dict[str, str]]:
    """Route -> URL of a server that answers it."""
    with ExitStack() as stack:

        def url(checkpoint: str) -> str:
            config = Serve(checkpoint=checkpoint, name="served", limits=Limits(body=2_000))
            return stack.enter_context(served(config))[0]

        encoder, pairs = url(str(tiny_run)), url(tuned("classification", paired=True).checkpoint)
        tags, spans = url(tuned("tags").checkpoint), url(tuned("spans").checkpoint)
        yield {
            **dict.fromkeys(("/embed", "/v1/embeddings", "/fill-mask"), encoder),
            **dict.fromkeys(("/predict", "/rerank"), pairs),
            "/tags": tags,
            "/answers": spans,
        }


def error(found: requests.Response) -> str:
    problem = found.json()["error"]
    return problem if isinstance(problem, str) else problem["message"]


@pytest.mark.parametrize("route", BODIES)
def test_null_means_an_options_default(route: str, urls: dict[str, str]) -> None:
    document = requests.get(f"{urls[route]}/openapi.json", timeout=30).json()
    content = document["paths"][route]["post"]["requestBody"]["content"]["application/json"]
    schema = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    optional = set(schema["properties"]) - set(schema["required"])
    assert optional
    without = post(urls[route] + route, BODIES[route])
    assert without.status_code == 200
    for field in optional:
        found = post(urls[route] + route, BODIES[route] | {field: None})
        assert (found.status_code, found.json()) == (200, without.json()), field
    if "parameters" in optional:
        options = {"top_k": None, "aggregation_strategy": None}
        assert post(urls[route] + route, BODIES[route] | {"parameters": options}).status_code == 200


def test_a_bare_question_takes_nulls(urls: dict[str, str]) -> None:
    bare = BODIES["/answers"]["inputs"]
    for body in (bare, bare | {"parameters": None}, {"inputs": bare, "parameters": {"top_k": None}}):
        assert post(f"{urls['/answers']}/answers", body).json()["answer"] == "lost"


NAMED: dict[str, tuple[str, Any, str]] = {
    "no texts": ("/v1/embeddings", {"input": []}, "input is an empty list: give at least one text"),
    "no candidates": ("/rerank", {"texts": []}, "texts is an empty list: give at least one text"),
    "an empty row": ("/predict", {"inputs": [["a", "b"], []]}, "inputs[1] is an empty list: give at least one text"),
    "a null": ("/embed", {"inputs": None}, "inputs must be a text or a list"),
    "a null among texts": ("/embed", {"inputs": ["kar", None]}, "inputs[1] must be a text"),
    "token ids": ("/v1/embeddings", {"input": [5, 6]}, "input[0] must be a text (token ids are not supported)"),
    "lists of token ids": ("/v1/embeddings", {"input": [[5]]}, "input[0] must be a text (token ids are not supported)"),
    "an empty text": ("/v1/embeddings", {"input": ""}, "input is empty: give a text"),
    "an empty text of several": ("/v1/embeddings", {"input": ["kar", " "]}, "input[1] is empty: give a text"),
    "an empty second text": ("/predict", {"inputs": ["kar", ""]}, "inputs[1] is empty: give a text"),
    "an empty text in a row": ("/predict", {"inputs": [["kar", "a"], ["", "b"]]}, "inputs[1][0] is empty: give a text"),
    "an empty text to tag": ("/tags", {"inputs": ""}, "inputs is empty: give a text"),
    "an empty question": (
        "/answers",
        {"inputs": [{"question": "", "context": "lost"}]},
        "inputs[0].question is empty: give a text",
    ),
    "a list of texts for a pair": (
        "/predict",
        {"inputs": ["a", "b", "c"]},
        'inputs has 3 texts, and at most 2 make a row; send several rows as [["a text"], ["another"]]',
    ),
    "a text too long": (
        "/v1/embeddings",
        {"input": ["kar", LONG]},
        "input[1] must have at most 32 tokens, and has 42: send a shorter text, or truncate: true",
    ),
    "a mask that is cut": (
        "/fill-mask",
        {"inputs": f"{LONG} [MASK]", "truncate": True},
        "inputs has [MASK] only in the end that was truncated: send a shorter text",
    ),
    "half a character": (
        "/v1/embeddings",
        {"input": ["kar", "\ud800"]},
        "input[1] has lone surrogates, which are no characters: send valid Unicode",
    ),
}


def test_a_refusal_names_the_field_that_was_sent(urls: dict[str, str]) -> None:
    said = {}
    for case, (route, fields, _) in NAMED.items():
        found = post(urls[route] + route, BODIES[route] | fields)
        said[case] = found.status_code // 100, error(found)
    assert said == {case: (4, message) for case, (*_, message) in NAMED.items()}


def test_a_bare_questions_refusal_names_its_own_fields(urls: dict[str, str]) -> None:
    url = f"{urls['/answers']}/answers"
    for body, message in (
        ({"question": "kar?"}, "context: Field required"),
        ({"context": "lost"}, "question: Field required"),
        ({"question": "kar?", "context": ""}, "context is empty: give a text"),
        ({"inputs": {"question": "kar?", "context": ""}}, "inputs.context is empty: give a text"),
    ):
        assert error(post(url, body)) == message
    bare = AnswersBody.model_validate({"question": "kar?", "context": "lost"})
    assert bare.name(0, None) == "context with the question"


def test_openai_embeds_with_truncate(urls: dict[str, str]) -> None:
    client = openai.OpenAI(base_url=f"{urls['/embed']}/v1", api_key="any", max_retries=0)
    found = client.embeddings.create(model="served", input=LONG, extra_body={"truncate": True})
    assert found.usage.prompt_tokens == 32


@pytest.mark.parametrize("given", [None, "application/x-www-form-urlencoded", "text/plain"])
def test_json_is_read_without_its_content_type(given: str | None, urls: dict[str, str]) -> None:
    headers = {"Content-Type": given} if given else {}
    url, wanted = f"{urls['/embed']}/embed", post(f"{urls['/embed']}/embed", {"inputs": "kar"}).json()
    assert requests.post(url, data=b' {"inputs": "kar"}', headers=headers, timeout=30).json() == wanted
    found = requests.post(url, data=b"inputs=kar", headers=headers, timeout=30)
    named = f"Content-Type is {given!r}" if given else "Content-Type is missing"
    assert found.status_code == 422
    assert error(found) == (
        f'the body is no JSON object ({named}): send one with the header "Content-Type: application/json"'
    )


BROKEN: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "nothing": (b"", {}, 422, 'the body is empty: send a JSON object with the header "Content-Type: application/json"'),
    "a list": (b'["kar"]', {}, 422, "the body is no JSON object: write the texts into its fields, such as "),
    "Latin-1": (b'{"inputs": "k\xe4r"}', {}, 422, "the body is no JSON object in UTF-8: 'utf-8' codec can't decode"),
    "lists in lists": (b'{"inputs":' + b"[" * 1_900, {}, 422, "the body is no JSON object"),
    "a long number": (b'{"inputs":' + b"9" * 1_900 + b"}", {}, 422, "inputs must be a text or a list"),
    "gzip": (
        gzip.compress(b'{"inputs": "kar"}'),
        {"Content-Encoding": "gzip"},
        415,
        "Content-Encoding 'gzip' is not read: send plain JSON",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_body_is_the_clients_error(case: str, urls: dict[str, str]) -> None:
    body, headers, status, message = BROKEN[case]
    found = requests.post(f"{urls['/embed']}/embed", data=body, headers=JSON | headers, timeout=30)
    assert found.status_code == status and error(found).startswith(message)


def test_head_is_answered_as_get_without_the_body(urls: dict[str, str]) -> None:
    url = urls["/embed"]
    document = requests.get(f"{url}/openapi.json", timeout=30).json()
    routes = [route for route, methods in document["paths"].items() if "get" in methods]
    assert {"/health", "/info", "/metrics", "/v1/models"} < set(routes)
    for route in (*routes, "/docs", "/openapi.json", "/nothing"):
        got, head = requests.get(url + route, timeout=30), requests.head(url + route, timeout=30)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["Content-Type" if got.content else "Content-Length"]
    assert requests.head(f"{url}/embed", timeout=30).headers["Allow"] == "POST"


def test_a_wrong_method_is_told_the_right_one(urls: dict[str, str]) -> None:
    for method, route, allowed in (
        ("GET", "/embed", "POST"),
        ("POST", "/info", "GET, HEAD"),
        ("PUT", "/docs", "GET, HEAD"),
    ):
        found = requests.request(method, urls["/embed"] + route, timeout=30)
        assert (found.status_code, found.headers["Allow"]) == (405, allowed)
        assert error(found) == f"{route} does not take {method}: use {allowed}"


def test_openai_lists_the_model(urls: dict[str, str]) -> None:
    client = openai.OpenAI(base_url=f"{urls['/embed']}/v1", api_key="any", max_retries=0)
    assert [model.id for model in client.models.list()] == ["served"]
    assert client.models.retrieve("served").owned_by == "bertstream"
    with pytest.raises(openai.NotFoundError, match="model 'other/model' is not served here: ask for served"):
        client.models.retrieve("other/model")


def test_the_start_names_every_route(tiny_run: Path, urls: dict[str, str]) -> None:
    config = Serve(checkpoint=str(tiny_run))
    _, routes, _ = started_lines(config, describe_on_cpu(config))
    named = set(routes.removeprefix("routes: ").split(", "))
    paths = requests.get(f"{urls['/embed']}/openapi.json", timeout=30).json()["paths"]
    got = {route for route in paths if "get" in paths[route]} - {"/v1/models/{name}"}
    answered = [route for route in BODIES if post(urls["/embed"] + route, BODIES[route]).ok]
    assert named == got | {*answered, "/docs", "/redoc", "/openapi.json"}
    assert requests.get(f"{urls['/embed']}/info", timeout=30).json()["routes"] == answered


def test_the_openapi_document_has_the_servers_own_errors(urls: dict[str, str]) -> None:
    document = requests.get(f"{urls['/embed']}/openapi.json", timeout=30).json()
    for route in BODIES:
        assert set(document["paths"][route]["post"]["responses"]) == {"200", "4XX"}
    assert set(document["components"]["schemas"]["Refusal"]["properties"]) == {"error", "error_type"}


def counted(url: str) -> dict[str, float]:
    """Status of requests to /embed -> their number in /metrics."""
    lines = requests.get(f"{url}/metrics", timeout=30).text.splitlines()
    beginning = 'bertstream_requests_total{route="/embed",status="'
    return {line.removeprefix(beginning)[:3]: float(line.split()[1]) for line in lines if line.startswith(beginning)}


def test_a_client_that_hangs_up_while_it_sends_is_no_servers_error(tiny_run: Path) -> None:
    with served(Serve(checkpoint=str(tiny_run))) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b'POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"inputs": "kar"}')
        until = time.monotonic() + 10
        while not counted(url) and time.monotonic() < until:
            time.sleep(0.02)
        assert counted(url) == {"499": 1}


def test_a_request_that_is_cancelled_is_counted_as_a_client_that_has_gone() -> None:
    measures = Measures()

    async def run(begun: bool) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            if begun:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            await asyncio.sleep(60)

        async def nothing(*_: Any) -> None:
            """Receive or send nothing."""

        counting = Measured(app, measures, {"/embed"})
        task = asyncio.create_task(counting({"type": "http", "path": "/embed"}, nothing, nothing))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for begun in (False, False, True):
        asyncio.run(run(begun))
    text = measures.text().decode()
    assert 'bertstream_requests_total{route="/embed",status="499"} 2.0' in text
    assert 'bertstream_requests_total{route="/embed",status="200"} 1.0' in text
    assert 'status="500"' not in text and "bertstream_requests_in_progress 0.0" in text


@pytest.mark.parametrize("cancelled", [TaskCancelledError(), RequestCancelledError("1")])
def test_a_replica_whose_request_is_cancelled_has_not_failed(cancelled: Exception) -> None:
    async def ask(request: Inputs) -> Any:
        raise cancelled

    with pytest.raises(RequestError) as found:
        asyncio.run(answer_of(ask, Inputs(use="embed", rows=["kar"], tokens=1), 5.0))
    assert found.value.status == 499
