"""Bodies of requests: those of Text Embeddings Inference, of OpenAI's embeddings, and of transformers' pipelines."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Pair = tuple[str, str]
"""A text and its second text."""
Several = Annotated[list[str], Field(min_length=1)]
OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2)]


class TruncatedBody(BaseModel):
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


class Parameters(BaseModel):
    """Options that Hugging Face's inference client sends; others are refused."""

    model_config = ConfigDict(extra="forbid")

    top_k: Annotated[int, Field(ge=1, le=100)] | None = None


class PredictBody(TruncatedBody):
    """A text, a pair of texts, or a list of lists of one or two texts."""

    inputs: str | OneOrTwo | Annotated[list[OneOrTwo], Field(min_length=1)]
    raw_scores: bool = False
    parameters: Parameters | None = None
    """Hugging Face's inference client sends these, and reads a list of lists even for one text."""


class RerankBody(TruncatedBody):
    """Texts to sort by their score with the query."""

    query: str
    texts: Several
    raw_scores: bool = False
    return_text: bool = False


class TextsBody(TruncatedBody):
    """Texts to tag, or texts with mask tokens."""

    inputs: str | Several
    parameters: Parameters = Parameters()


class Question(BaseModel):
    """A question and the text that may answer it."""

    question: str
    context: str


class AnswersBody(BaseModel):
    """Questions with their contexts; the inference client sends the two texts without `inputs`."""

    inputs: Question | Annotated[list[Question], Field(min_length=1)]
    parameters: Parameters = Parameters()

    @model_validator(mode="before")
    @classmethod
    def _wrap(cls, body: object) -> object:
        """Accept a bare question with its context."""
        if not isinstance(body, dict) or "question" not in body or "inputs" in body:
            return body
        return {"inputs": body, "parameters": body.get("parameters", {})}


class OpenAIBody(BaseModel):
    """Texts to embed, as OpenAI's API reads them."""

    input: str | Several
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None
