"""A served model over HTTP: the clients of others as they are, values equal to the model's own, and every refusal."""

import json
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import requests
import torch
import uvicorn
from huggingface_hub import InferenceClient

from pipeline import api
from pipeline.config.serve import Limits, Serve, ServePlacement
from pipeline.model.int8 import Int8Linear
from pipeline.saved.checkpoints import folder_of
from pipeline.serve.gate import digest
from pipeline.serve.http import build_app
from pipeline.serve.model import Refused, ServedModel, describe_on_cpu, load, load_described
from pipeline.serve.one_process import OneProcess, server_of
from pipeline.serve.problems import overloaded, unavailable
from pipeline.serve.uses import Inputs

pytestmark = pytest.mark.usefixtures("one_thread")  # as the thread that computes answers, so that sums are equal
LONG = " ".join(["kar"] * 40)
"""A text of more tokens than the model has positions."""


def running(app: Any) -> AbstractContextManager[str]:
    """Run an application on a free port of this machine; give its URL."""
    return listening(uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")))


@contextmanager
def listening(server: uvicorn.Server) -> Iterator[str]:
    """Run a server on a free port of this machine; give its URL."""
    server.config.port = 0
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


async def answering() -> bool:
    return True


async def silent() -> bool:
    return False


@contextmanager
def served(
    config: Serve,
    token: str | None = None,
    ask: Callable[[ServedModel, Inputs], Awaitable[list[Any] | Refused]] | None = None,
) -> Iterator[tuple[str, ServedModel]]:
    """Serve a model from this process, or its answers by `ask`; give its URL and the model."""
    process = OneProcess(replace(config, placement=replace(config.placement, threads=1)), load(config))
    model = process.replica.model
    if ask:
        process.ask = partial(ask, model)
    with listening(server_of(process, digest(token.encode()) if token else None)) as url:
        yield url, model


def post(url: str, body: Any, **headers: str) -> requests.Response:
    headers = {"Content-Type": "application/json"} | headers
    return requests.post(url, data=json.dumps(body), headers=headers, timeout=30)


@pytest.fixture(scope="module")
def encoder(tiny_run: Path) -> Iterator[tuple[str, ServedModel]]:
    """A pretrained encoder."""
    with served(Serve(checkpoint=str(tiny_run), name="tiny", limits=Limits(texts=4, body=2_000))) as found:
        yield found


@pytest.fixture(scope="module")
def cross_encoder(tuned: Callable[..., Serve]) -> Iterator[tuple[str, ServedModel]]:
    """A model of pairs of texts with two classes."""
    with served(replace(tuned("classification", paired=True), name="pairs")) as found:
        yield found


def test_openai_gets_the_models_vectors(encoder: tuple[str, ServedModel]) -> None:
    url, model = encoder
    client, texts = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0), ["kar lost", "kap"]
    whole = client.embeddings.create(model="tiny", input=texts)  # it asks for base64
    wanted = model.loaded.embed(texts)
    np.testing.assert_allclose([one.embedding for one in whole.data], wanted, rtol=0, atol=1e-6)
    assert whole.usage.prompt_tokens == sum(len(model.loaded.tokenize(text).ids) for text in texts)
    short = client.embeddings.create(model="tiny", input="kar lost", dimensions=4, encoding_format="float")
    first = wanted[0, :4] / np.linalg.norm(wanted[0, :4])
    np.testing.assert_allclose(short.data[0].embedding, first, rtol=0, atol=1e-6)


def test_openai_raises_its_own_errors(encoder: tuple[str, ServedModel]) -> None:
    client = openai.OpenAI(base_url=f"{encoder[0]}/v1", api_key="any", max_retries=0)
    with pytest.raises(openai.NotFoundError, match="model 'other' is not served here: ask for tiny"):
        client.embeddings.create(model="other", input="kar")
    with pytest.raises(openai.APIStatusError, match="input must have at most 32 tokens, and has 42"):
        client.embeddings.create(model="tiny", input=LONG)


def test_the_hub_client_gets_vectors_and_words(encoder: tuple[str, ServedModel]) -> None:
    url, model = encoder
    vectors = InferenceClient(f"{url}/embed").feature_extraction("kar lost", normalize=True)
    np.testing.assert_allclose(vectors, model.loaded.embed(["kar lost"]), rtol=0, atol=1e-6)
    guesses = InferenceClient(f"{url}/fill-mask").fill_mask("kar [MASK] lost", top_k=3)
    wanted = model.loaded.fill("kar [MASK] lost", top=3)[0]
    assert [guess.token_str for guess in guesses] == [one["token"] for one in wanted]
    assert [guess.score for guess in guesses] == pytest.approx([one["probability"] for one in wanted], abs=1e-6)
    assert guesses[0].sequence == f"kar {wanted[0]['token']} lost"
    assert guesses[0].token == model.loaded.vocabulary.ids[str(wanted[0]["token"])]


def test_int8_answers_near_float32(tiny_run: Path, tuned: Callable[..., Serve]) -> None:
    for config, route, body in (
        (Serve(checkpoint=str(tiny_run)), "/embed", {"inputs": ["kar lost", "kap mist mir"]}),
        (tuned("classification"), "/predict", {"inputs": [["kar lost"], ["kap mist mir"]], "raw_scores": True}),
    ):
        with served(replace(config, placement=ServePlacement(device="cpu", precision="int8"))) as (url, model):
            assert any(isinstance(module, Int8Linear) for module in model.loaded.encoder.modules())
            assert requests.get(f"{url}/info", timeout=30).json()["model_dtype"] == "int8"
            found = numbers(post(url + route, body).json())
        with served(config) as (url, _):
            wanted = numbers(post(url + route, body).json())
        assert not np.array_equal(found, wanted)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.1 * np.abs(wanted).max())


def test_a_model_at_a_url_answers_as_from_its_folder(hub: Path, tiny_run: Path, tuned: Callable[..., Serve]) -> None:
    texts, labelled = ["kar lost", "kap"], tuned("classification").checkpoint
    shutil.copytree(folder_of(str(tiny_run), 3), hub / "google" / "encoder")
    shutil.copytree(labelled, hub / "google" / "labels")
    config = Serve(checkpoint="hf://google/encoder")
    replica = load_described(describe_on_cpu(config), config)
    with served(config) as (url, _):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
        found = client.embeddings.create(model="google/encoder", input=texts)
        wanted = api.load(str(tiny_run)).embed(texts)
        for vectors in ([one.embedding for one in found.data], replica.answer("embed", texts)):
            np.testing.assert_allclose(vectors, wanted, rtol=0, atol=1e-6)
    with served(Serve(checkpoint="hf://google/labels")) as (url, _):
        best = post(f"{url}/predict", {"inputs": texts[0]}).json()
        (answer,) = api.load(labelled).predict(texts[:1])
        assert {one["label"]: pytest.approx(one["score"], abs=1e-6) for one in best} == answer["probabilities"]


def numbers(rows: list[Any]) -> np.ndarray:
    """Vectors, or the scores of labels in the order of the labels' names."""
    named = isinstance(rows[0][0], dict)
    return np.array([[one["score"] for one in sorted(row, key=itemgetter("label"))] if named else row for row in rows])


def test_several_masks_have_a_list_each(encoder: tuple[str, ServedModel]) -> None:
    (found,) = post(f"{encoder[0]}/fill-mask", {"inputs": ["[MASK] kar [MASK]"]}).json()
    assert [len(best) for best in found] == [5, 5] and found[1][0]["sequence"].startswith("[MASK] kar ")


def test_a_text_has_its_labels_best_first(tuned: Callable[..., Serve]) -> None:
    with served(tuned("classification")) as (url, model):
        best = InferenceClient(f"{url}/predict").text_classification("kar lost")
        (wanted,) = api.load(model.loaded.location).predict(["kar lost"])
        assert {one.label: pytest.approx(one.score, abs=1e-6) for one in best} == wanted["probabilities"]
        assert best[0].label == wanted["label"] and best[0].score > best[1].score
        assert post(f"{url}/predict", {"inputs": "kar lost"}).json()[0]["label"] == wanted["label"]
        assert post(f"{url}/rerank", {"query": "kar", "texts": ["lost"]}).status_code == 424


def test_pairs_have_labels(tuned: Callable[..., Serve]) -> None:
    with served(tuned("classification", paired=True)) as (url, model):
        both = post(f"{url}/predict", {"inputs": [["kar", "lost"], ["kap", "mir"]]}).json()
        (first, _) = wanted = api.load(model.loaded.location).predict([("kar", "lost"), ("kap", "mir")])
        assert [one[0]["label"] for one in both] == [one["label"] for one in wanted]
        assert {one["label"]: pytest.approx(one["score"], abs=1e-6) for one in both[0]} == first["probabilities"]
        raw = post(f"{url}/predict", {"inputs": ["kar", "lost"], "raw_scores": True}).json()
        assert raw[0]["score"] - raw[1]["score"] == pytest.approx(
            np.log(both[0][0]["score"] / both[0][1]["score"]), abs=1e-4
        )
        for rows in ("kar", [["kar", "lost"], ["kar"]]):
            refused = post(f"{url}/predict", {"inputs": rows}).json()["error"]
            assert "must be a list of two texts, as in the rows that the model was trained on" in refused


def test_several_labels_have_their_own_probabilities(tuned: Callable[..., Serve]) -> None:
    with served(tuned("multilabel")) as (url, model):
        found = post(f"{url}/predict", {"inputs": "kar lost"}).json()
        (wanted,) = api.load(model.loaded.location).predict(["kar lost"])
        assert {one["label"]: pytest.approx(one["score"], abs=1e-6) for one in found} == wanted["probabilities"]


def test_a_number_is_its_own_score(tuned: Callable[..., Serve]) -> None:
    with served(tuned("regression")) as (url, model):
        (wanted,) = api.load(model.loaded.location).predict(["kar lost"])
        assert post(f"{url}/predict", {"inputs": "kar lost"}).json() == [
            {"score": pytest.approx(wanted["score"], abs=1e-5), "label": "score"}
        ]


def test_texts_are_sorted_by_the_scores_of_a_cross_encoder(tuned: Callable[..., Serve]) -> None:
    with served(tuned("classification", paired=True)) as (url, model):
        texts = ["lost", "kap mist", "kar kar kar", "mir"]
        found = post(f"{url}/rerank", {"query": "kar", "texts": texts, "raw_scores": True, "return_text": True}).json()
        answers = api.load(model.loaded.location).predict([("kar", text) for text in texts])
        shares = [[answer["probabilities"][label] for label in ("bad", "good")] for answer in answers]
        wanted = np.array([np.log(good / bad) for bad, good in shares])
        assert [one["index"] for one in found] == np.argsort(-wanted).tolist()
        assert [one["score"] for one in found] == pytest.approx(sorted(wanted, reverse=True), abs=1e-4)
        assert [one["text"] for one in found] == [texts[one["index"]] for one in found]
        sorted_shares = post(f"{url}/rerank", {"query": "kar", "texts": texts}).json()
        assert [one["score"] for one in sorted_shares] == pytest.approx(
            sorted((good for _, good in shares), reverse=True), abs=1e-6
        )


def test_words_have_tags_and_offsets(tuned: Callable[..., Serve]) -> None:
    with served(tuned("tags")) as (url, model):
        text = " kar  lost kand."
        found = InferenceClient(f"{url}/tags").token_classification(text)
        assert [text[one.start : one.end] for one in found] == [one.word for one in found] == ["kar", "lost", "kand."]
        assert [one["entity"] for one in found] == api.load(model.loaded.location).predict([text])[0]["tags"]
        assert post(f"{url}/tags", {"inputs": [text, "kar"]}).json()[1][0]["word"] == "kar"
        _, prepared, (logits,) = model._logits({"words": [text.split()]})
        (window,) = prepared.windows[0]
        shares = torch.from_numpy(logits[window.first]).softmax(1).max(1).values
        assert [one["score"] for one in found] == pytest.approx(shares.tolist(), abs=1e-6)


def test_a_word_without_tokens_has_no_score(tuned: Callable[..., Serve]) -> None:
    with served(tuned("tags")) as (url, _):
        found = post(f"{url}/tags", {"inputs": "kar \u200b lost"}).json()
        assert [one["score"] is None for one in found] == [False, True, False] and found[1]["entity"] == "O"


def test_a_tagger_with_intents_predicts_them(tuned: Callable[..., Serve]) -> None:
    with served(tuned("tags", intents=("buy", "sell"))) as (url, model):
        found = post(f"{url}/predict", {"inputs": [["kar lost mir"], ["\u200b"]]}).json()
        (answer,) = api.load(model.loaded.location).predict(["kar lost mir"])
        assert found[0][0]["label"] == answer["intent"] and {one["label"] for one in found[0]} == {"buy", "sell"}
        assert sum(one["score"] for one in found[0]) == pytest.approx(1) and found[0][0]["score"] > 0.5
        assert len(found) == 2, "a text whose only word has no tokens"
        assert [one["entity"] for one in post(f"{url}/tags", {"inputs": "kar lost mir"}).json()] == answer["tags"]
        assert requests.get(f"{url}/info", timeout=30).status_code == 200


def test_answers_are_the_best_spans(tuned: Callable[..., Serve]) -> None:
    context = "lost kand kar mir nel ta sup kar lost kand kar mir nel ta"
    with served(tuned("spans")) as (url, model):
        client = InferenceClient(f"{url}/answers")
        best = client.question_answering("kar?", context)
        (wanted,) = api.load(model.loaded.location).predict([("kar?", context)])
        assert (best.answer, best.start, best.end) == (wanted["answer"], wanted["start"], wanted["end"])
        several = client.question_answering("kar?", context, top_k=3)
        assert len(several) == 3 and several[0].answer == best.answer
        bare = {"question": "kar?", "context": context, "parameters": {"top_k": 3}}
        assert [one["answer"] for one in post(f"{url}/answers", bare).json()] == [one.answer for one in several]
        assert all(context[one.start : one.end] == one.answer for one in several)


REFUSED: dict[str, tuple[str, Any, int, str]] = {
    "another kind": ("/rerank", {"query": "a", "texts": ["b"]}, 424, "/rerank needs another kind of model: this one"),
    "too many texts": ("/embed", {"inputs": ["kar"] * 5}, 413, "the request has 5 texts, and at most 4 are allowed"),
    "too long": ("/embed", {"inputs": ["kar", LONG]}, 413, "inputs[1] must have at most 32 tokens, and has 42"),
    "too many bytes": ("/embed", {"inputs": "kar " * 600}, 413, "the body has more than 2,000 bytes (limits.body)"),
    "an empty text": ("/embed", {"inputs": ["kar", " "]}, 400, "inputs[1] is empty: give a text"),
    "no texts": ("/embed", {"inputs": []}, 422, "inputs is an empty list: give at least one text"),
    "not a text": ("/embed", {"inputs": 3}, 422, "inputs must be a text or a list"),
    "half a character": ("/embed", {"inputs": "\ud800"}, 422, "inputs has lone surrogates, which are no characters"),
    "too many numbers": ("/embed", {"inputs": "kar", "dimensions": 33}, 422, "dimensions (33) must be at most 32"),
    "three texts": ("/predict", {"inputs": [["a", "b", "c"]]}, 422, "inputs[0] has 3 texts, and at most 2 make a row"),
    "an option that has no effect": (
        "/fill-mask",
        {"inputs": "[MASK]", "parameters": {"targets": ["a"]}},
        422,
        "parameters.targets: Extra inputs are not permitted",
    ),
    "unknown prompt": ("/embed", {"inputs": "kar", "prompt_name": "q"}, 422, "prompt_name ('q') must be one of none"),
    "a text's end alone": (
        "/embed",
        {"inputs": LONG, "truncate": True, "truncation_direction": "left"},
        422,
        "truncation_direction: Input should be 'right' or 'Right'",
    ),
    "no mask": ("/fill-mask", {"inputs": ["[MASK]", "kar"]}, 422, "inputs[1] has no mask token: write [MASK]"),
    "no route": ("/nothing", {"inputs": "kar"}, 404, "/nothing is no route: there are /embed, /v1/embeddings,"),
}


def test_a_refusal_has_the_apis_own_body(encoder: tuple[str, ServedModel]) -> None:
    wrong = []
    for case, (path, body, status, message) in REFUSED.items():
        found = post(encoder[0] + path, body)
        said, kind = found.json()["error"], found.json()["error_type"]
        if found.status_code != status or not said.startswith(message) or kind not in ("Validation", "Backend"):
            wrong.append((case, found.status_code, said, kind))
    assert wrong == []


REFUSED_PAIRS: dict[str, tuple[str, Any, int, str]] = {
    "no query": ("/rerank", {"texts": ["kar"]}, 422, "query: Field required"),
    "an empty query": ("/rerank", {"query": " ", "texts": ["kar"]}, 400, "query is empty: give a text"),
    "an empty candidate": ("/rerank", {"query": "kar", "texts": ["kap", ""]}, 400, "texts[1] is empty: give a text"),
    "a long candidate": (
        "/rerank",
        {"query": "kar", "texts": ["kap", LONG]},
        413,
        "texts[1] with the query must have at most 16 tokens, and has 44: send a shorter text, or truncate: true",
    ),
    "a candidate's end alone": (
        "/rerank",
        {"query": "kar", "texts": [LONG], "truncate": True, "truncation_direction": "left"},
        422,
        "truncation_direction: Input should be 'right' or 'Right'",
    ),
    "a pair's end alone": (
        "/predict",
        {"inputs": ["kar", LONG], "truncate": True, "truncation_direction": "Left"},
        422,
        "truncation_direction: Input should be 'right' or 'Right'",
    ),
}


@pytest.mark.parametrize("case", REFUSED_PAIRS)
def test_a_cross_encoders_refusal_names_the_field(case: str, cross_encoder: tuple[str, ServedModel]) -> None:
    path, body, status, message = REFUSED_PAIRS[case]
    found = post(cross_encoder[0] + path, body)
    assert found.status_code == status
    assert found.json() == {"error": message, "error_type": "Validation"}


def test_openais_route_has_openais_errors(cross_encoder: tuple[str, ServedModel]) -> None:
    url, _ = cross_encoder
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
    message = r"/v1/embeddings needs another kind of model: this one \(classification\) answers /predict, /rerank"
    with pytest.raises(openai.APIStatusError, match=message) as refused:
        client.embeddings.create(model="pairs", input="kar")
    assert (refused.value.status_code, refused.value.code) == (424, "wrong_route")
    headers = {"Content-Type": "application/json"}
    found = requests.post(f"{url}/v1/embeddings", data='{"input":', headers=headers, timeout=30)
    assert found.status_code == 422
    assert found.json()["error"] == {
        "message": "the body is no JSON object: Expecting value at character 9",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


def test_broken_json(encoder: tuple[str, ServedModel]) -> None:
    headers = {"Content-Type": "application/json"}
    found = requests.post(f"{encoder[0]}/embed", data='{"inputs":', headers=headers, timeout=30)
    assert found.status_code == 422
    assert found.json() == {
        "error": "the body is no JSON object: Expecting value at character 10",
        "error_type": "Validation",
    }


def test_names_that_are_no_unicode_are_refused(encoder: tuple[str, ServedModel]) -> None:
    found = post(f"{encoder[0]}/v1/embeddings", {"input": "kar", "model": "\ud800"})
    assert found.status_code == 404 and "model '\\ud800' is not served here" in found.json()["error"]["message"]


def test_texts_are_truncated_at_the_servers_own_length(tiny_run: Path) -> None:
    config = Serve(checkpoint=str(tiny_run), limits=Limits(length=8, truncate=True))
    with served(config) as (url, _):
        found = post(f"{url}/embed", {"inputs": LONG}).json()
        short = post(f"{url}/embed", {"inputs": " ".join(["kar"] * 6)}).json()
        refused = post(f"{url}/embed", {"inputs": LONG, "truncate": False}).json()["error"]
    np.testing.assert_allclose(found, short, rtol=0, atol=1e-6)
    assert refused.startswith("inputs must have at most 8 tokens, and has 42")


def test_an_output_that_is_no_number_is_an_error_of_the_api(tiny_run: Path) -> None:
    async def ask(model: ServedModel, request: Inputs) -> list[Any] | Refused:
        return [np.full(32, np.nan, np.float32)]

    with served(Serve(checkpoint=str(tiny_run), name="tiny"), ask=ask) as (url, _):
        found = post(f"{url}/embed", {"inputs": "kar"})
    assert found.status_code == 500 and found.json()["error"].startswith("the model's output is not finite")


def test_long_texts_are_truncated_where_a_request_says_so(encoder: tuple[str, ServedModel]) -> None:
    url, model = encoder
    found = post(f"{url}/embed", {"inputs": LONG, "truncate": True}).json()
    np.testing.assert_allclose(found, model.loaded.embed([LONG]), rtol=0, atol=1e-6)


def test_without_normalising_the_recipe_decides(encoder: tuple[str, ServedModel], tiny_run: Path) -> None:
    model = load(Serve(checkpoint=str(tiny_run)))
    model = replace(model, loaded=replace(model.loaded, recipe=replace(model.loaded.recipe, normalized=False)))
    config = Serve(checkpoint=str(tiny_run))

    async def own(request: Inputs) -> list[Any] | Refused:
        return model.answer_all([request])[0]

    with running(build_app(describe_on_cpu(config), config, own, None, answering)) as url:
        raw = np.array(post(f"{url}/embed", {"inputs": "kar lost", "normalize": False}).json())
        unit = np.array(post(f"{url}/embed", {"inputs": "kar lost"}).json())
    np.testing.assert_allclose(raw, model.loaded.embed(["kar lost"]), rtol=0, atol=1e-5)
    assert np.linalg.norm(raw) != pytest.approx(1, abs=1e-3) and np.linalg.norm(unit) == pytest.approx(1, abs=1e-6)


def test_a_token_is_needed_everywhere_but_for_health(tiny_run: Path) -> None:
    with served(Serve(checkpoint=str(tiny_run), name="tiny"), token="secret") as (url, _):
        assert requests.get(f"{url}/health", timeout=30).status_code == 200
        for path in ("/info", "/metrics", "/docs", "/openapi.json"):
            assert requests.get(url + path, timeout=30).status_code == 401
        assert post(f"{url}/embed", {"inputs": "kar"}, Authorization="Bearer wrong").status_code == 401
        assert post(f"{url}/embed", {"inputs": "kar"}, Authorization="Bearer secret").status_code == 200
        with pytest.raises(openai.AuthenticationError, match="the token is missing or wrong"):
            openai.OpenAI(base_url=f"{url}/v1", api_key="wrong").embeddings.create(model="tiny", input="kar")
        right = openai.OpenAI(base_url=f"{url}/v1", api_key="secret").embeddings.create(model="tiny", input="kar")
        assert len(right.data[0].embedding) == 32


def test_a_full_server_and_a_dead_one(tiny_run: Path) -> None:
    problems = [overloaded(), unavailable("the replica that had this request has died: ask again")]

    async def ask(model: ServedModel, request: Inputs) -> list[Any] | Refused:
        raise problems.pop(0)

    with served(Serve(checkpoint=str(tiny_run), name="tiny"), ask=ask) as (url, _):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
        with pytest.raises(openai.RateLimitError, match="Model is overloaded: ask again later"):
            client.embeddings.create(model="tiny", input="kar")
        found = post(f"{url}/embed", {"inputs": "kar"})
        assert found.status_code == 503 and found.json()["error_type"] == "Unhealthy"


def test_health_is_that_of_the_replicas(tiny_run: Path) -> None:
    config = Serve(checkpoint=str(tiny_run))

    async def own(request: Inputs) -> list[Any] | Refused:
        raise AssertionError("health asks no model")

    described = describe_on_cpu(config)
    with running(build_app(described, config, own, digest(b"secret"), silent)) as url:
        found = requests.get(f"{url}/health", timeout=30)
    assert found.status_code == 503
    assert found.json() == {"error": "no replica of the model answers", "error_type": "Unhealthy"}
    with running(build_app(described, config, own, digest(b"secret"), answering)) as url:
        assert requests.get(f"{url}/health", timeout=30).status_code == 200


def test_info_and_metrics(encoder: tuple[str, ServedModel]) -> None:
    url, _ = encoder
    info = requests.get(f"{url}/info", timeout=30).json()
    assert (info["model_id"], info["dimension"], info["max_input_length"]) == ("tiny", 32, 32)
    assert info["routes"] == ["/embed", "/v1/embeddings", "/fill-mask"] and info["model_type"] == {
        "embedding": {"pooling": "mean"}
    }
    post(f"{url}/embed", {"inputs": "kar"})
    metrics = requests.get(f"{url}/metrics", timeout=30).text
    assert 'bertstream_requests_total{route="/embed",status="200"}' in metrics
    assert 'bertstream_request_tokens_bucket{le="8.0",route="/embed"}' in metrics
