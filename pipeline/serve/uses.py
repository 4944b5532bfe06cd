"""Uses of a served model, its description, and the rows of one request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.config.task_kind import Kind

Use = Literal["embed", "predict", "rerank", "tags", "answers", "fill"]
ROUTES: dict[Use, str] = {
    "embed": "/embed",
    "predict": "/predict",
    "rerank": "/rerank",
    "tags": "/tags",
    "answers": "/answers",
    "fill": "/fill-mask",
}
"""Use of a model -> its route; vectors have the route OPENAI_ROUTE too."""
OPENAI_ROUTE = "/v1/embeddings"
COMMON = ("/v1/models", "/info", "/health", "/metrics", "/docs", "/redoc", "/openapi.json")
"""Routes of every server."""

HELD = 64
"""Requests that each replica holds: those that it computes, and those that form its next batch."""


def sigmoid(numbers: np.ndarray) -> np.ndarray:
    """Return the logistic function of numbers, without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * numbers))


def _softmax(outputs: np.ndarray) -> np.ndarray:
    """Return the softmax of outputs (texts, classes) over the classes."""
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _unchanged(outputs: np.ndarray) -> np.ndarray:
    """Return outputs as they are: numbers have no probability."""
    return outputs


@dataclass(frozen=True, kw_only=True)
class ServedForm:
    """Service of the models of one kind of task.

    Models with intents can be asked for these too, models that score pairs for a ranking, and models that were trained
    to make vectors for these.
    """

    uses: tuple[Use, ...] = ("predict",)
    """Uses of every model of the kind."""
    probabilities: Callable[[np.ndarray], np.ndarray] = _softmax
    """Function from outputs (texts, classes) to the scores in answers."""
    splits: bool = False
    """Whether longer texts are always split, and so read whole."""
    not_served: str = ""
    """Reason why models of the kind are not served; empty if they are."""


ENCODER = ServedForm(uses=("embed",))
"""Service of models without a task; some can also fill masks."""
_NUMBERS, _VECTORS = ServedForm(probabilities=_unchanged), ServedForm(uses=())
SERVED: dict[Kind, ServedForm] = {
    "classification": ServedForm(),
    "multilabel": ServedForm(probabilities=sigmoid),
    "regression": _NUMBERS,
    "ranking": _NUMBERS,
    "similarity": _VECTORS,
    "matching": _VECTORS,
    "relations": _VECTORS,
    "tags": ServedForm(uses=("tags",), splits=True),
    "spans": ServedForm(uses=("answers",), splits=True),
    "choices": ServedForm(
        uses=(),
        not_served="a model of multiple choice, which is not served: answer files with jobs/predict.py",
    ),
}


def processes(count: int) -> str:
    """Return a number of processes in words."""
    return f"{count} {'process' if count == 1 else 'processes'}"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The rows of one request, as they travel to a replica."""

    use: Use
    rows: Sequence[Any]
    """embed, predict and rerank: texts, or tuples of two texts; tags and fill: texts; answers: tuples of a question and
    its context.
    """
    tokens: int
    """Tokens of all rows that the model reads."""
    top: int = 5
    """fill and answers: best candidates to return."""


@dataclass(frozen=True, kw_only=True)
class ServedDescription:
    """Everything that answers to clients say about the served model."""

    checkpoint: str
    name: str
    kind: str
    """Kind of the model's task, or encoder."""
    uses: tuple[Use, ...]
    digest: str
    """Beginning of the SHA-256 of the model's files."""
    precision: str
    maximum_length: int
    """Tokens per text."""
    lengths: Mapping[Use, int]
    """The same for the uses that never split texts: embed and fill."""
    splits: bool
    """Whether longer texts are split rather than truncated; then maximum_length limits the whole text."""
    paired: bool | None
    """Whether rows are pairs of texts; None: the model's files do not say."""
    tokenizer: str
    """The model's tokenizer as JSON, which counts tokens."""
    labels: tuple[str, ...] = ()
    """Classes of a text; for a tagger, its intents, or without intents its tags."""
    pooling: str | None = None
    dimension: int | None = None
    """Numbers per vector; None for a model without vectors."""
    prompts: tuple[tuple[str, str], ...] = ()
    """Name and text of each prompt that may precede a text."""
    default_prompt: str = ""
    """Text that precedes texts of requests without a prompt."""

    @property
    def routes(self) -> list[str]:
        """Routes that the model answers."""
        return [route for use in self.uses for route in (ROUTES[use], *((OPENAI_ROUTE,) if use == "embed" else ()))]
