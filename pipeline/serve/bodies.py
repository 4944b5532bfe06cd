"""Bodies of requests: those of Text Embeddings Inference, of OpenAI's embeddings, and of transformers' pipelines."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

Pair = tuple[str, str]
"""A text and its second text."""
Several = Annotated[list[str], Field(min_length=1)]
OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2)]


class Body(BaseModel):
    """Fields of which null means the default, as clients and proxies send it for options that are not set."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: object) -> object:
        """Remove fields that are null, except those without a default."""
        if not isinstance(body, dict):
            return body
        required = {name for name, field in cls.model_fields.items() if field.is_required()}
        return {name: value for name, value in body.items() if value is not None or name in required}


class TruncatedBody(Body):
    """Options about texts that are too long, as Text Embeddings Inference reads them."""

    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    """A text loses its end. Text Embeddings Inference can remove its beginning instead; that is refused here."""


class EmbedBody(TruncatedBody):
    """Texts to embed, as Text Embeddings Inference reads them."""

    inputs: str | Several
    normalize: bool = True
    prompt_name: str | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class Parameters(Body):
    """Options that Hugging Face's inference client sends; others are refused."""

    model_config = ConfigDict(extra="forbid")

    top_k: Annotated[int, Field(ge=1, le=100)] | None = None


class PredictBody(TruncatedBody):
    """A text, a pair of texts, or a list of lists of one or two texts."""

    inputs: str | OneOrTwo | Annotated[list[OneOrTwo], Field(min_length=1)]
    raw_scores: bool = False
    parameters: Parameters | None = None
    """Hugging Face's inference client sends these, and reads a list of lists even for one text."""

    def name(self, row: int, part: int | None) -> str:
        """Name a row, or a text of it, as it was sent."""
        if isinstance(self.inputs, str):
            return "inputs"
        whole = "inputs" if isinstance(self.inputs[0], str) else f"inputs[{row}]"
        return whole if part is None else f"{whole}[{part}]"


class RerankBody(TruncatedBody):
    """Texts to sort by their score with the query."""

    query: str
    texts: Several
    raw_scores: bool = False
    return_text: bool = False

    def name(self, row: int, part: int | None) -> str:
        """Name a text, or the query."""
        return "query" if part == 0 else f"texts[{row}]" if part == 1 else f"texts[{row}] with the query"


class TextsBody(TruncatedBody):
    """Texts to tag, or texts with mask tokens."""

    inputs: str | Several
    parameters: Parameters = Parameters()


class QuestionBody(BaseModel):
    """A question and the text that may answer it."""

    question: str
    context: str


class AnswersBody(Body):
    """Questions with their contexts; the inference client sends the two texts without `inputs`."""

    inputs: QuestionBody | Annotated[list[QuestionBody], Field(min_length=1)]
    parameters: Parameters = Parameters()
    _bare: bool = PrivateAttr(default=False)

    @model_validator(mode="wrap")
    @classmethod
    def _wrap(cls, body: object, handler: ModelWrapValidatorHandler["AnswersBody"]) -> "AnswersBody":
        """Accept a bare question with its context."""
        if not isinstance(body, dict) or "inputs" in body or not {"question", "context"} & body.keys():
            return handler(body)
        made = handler({"inputs": body, "parameters": body.get("parameters")})
        made._bare = True
        return made

    def name(self, row: int, part: int | None) -> str:
        """Name a question or a context as it was sent."""
        before = f"inputs[{row}]." if isinstance(self.inputs, list) else "" if self._bare else "inputs."
        return before + ("context with the question" if part is None else ("question", "context")[part])


class OpenAIBody(TruncatedBody):
    """Texts to embed, as OpenAI's API reads them, and the options about texts that are too long, which it lacks."""

    input: str | Several
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


class OpenAIProblem(BaseModel):
    """An error as OpenAI's API describes it."""

    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(BaseModel):
    """An error: of Text Embeddings Inference, or on the routes below /v1 of OpenAI's API."""

    error: str | OpenAIProblem
    error_type: str | None = None


def name_in(field: str, texts: str | list[str]) -> Callable[[int, int | None], str]:
    """Return the function that names a row of a field with one text or several."""
    return lambda row, part: field if isinstance(texts, str) else f"{field}[{row}]"
