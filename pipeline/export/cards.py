"""Words of the card of a fine-tuned model, by kind of task: templates whose holes `tuned_card.py` fills."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.config.task_kind import Kind
from pipeline.fine_tuned.published import PUBLISHED
from pipeline.fine_tuned.tuned import About
from pipeline.model.family import Family
from pipeline.tasks.known import takes_pairs

TEMPLATE = """\
# {name}

{article} {family} encoder with {layers} layers of width {width} that {purpose}. It was fine-tuned on {data} with \
bertstream {version}, from {encoder}; {reading}.

## Use

{use}

## Limitations

{limits}

## Figures

{figures}

## Training

{training}

## License

{license}
"""
HERE = "Run this in the model's folder; from elsewhere, give the folder's path."
NO_ARCHITECTURE = "`transformers` cannot load this model, because it has no such architecture."
OTHER_ANSWERS = "`transformers` would give other answers: {reason}."
OF_ADAPTERS = OTHER_ANSWERS.format(reason="the model has adapters")
OF_MEANS = OTHER_ANSWERS.format(reason="the head reads a mean of all states, not the state of [CLS]")
FIRST_TOKENS = "`transformers` cannot pool passages: it would answer by the first {maximum_length} tokens alone."
WITHOUT_CHAIN = (
    "The model has a conditional random field, whose scores of tags after each other (`crf.*` in `model.safetensors`) "
    "are read by `bertstream` only. `transformers` loads the scores of single tokens and picks the best tag of each "
    "token, so its answers differ. For the best tag sequence of a sentence (Viterbi), use `bertstream` as below."
)
BY_PIPELINE = """\
With `transformers`:

```python
from transformers import pipeline

answer = pipeline("{pipeline}", model="{folder}")
print({call})
```"""
QUESTIONS = "`transformers` no longer has a pipeline for questions. `AutoModelForQuestionAnswering` loads the model."
NO_CHOICES = "`transformers` cannot load this model, because it has no {title} for multiple choice."
CHOICES = "`transformers` has no pipeline for multiple choice. `AutoModelForMultipleChoice` loads the model."
VECTORS = """\
Compute vectors of length 1 with `sentence-transformers`:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{folder}")
print(model.encode(["A text."]).shape)
```"""
SHORTER_VECTORS = """\
The first {lengths} numbers of a vector are a vector too (Matryoshka). To get vectors of length 1 of the first \
{longest} numbers:

```python
model = SentenceTransformer("{folder}", truncate_dim={longest})
print(model.encode(["A text."], normalize_embeddings=True).shape)
```"""
BY_BERTSTREAM = """\
With `bertstream`:

```python
from pipeline import api

model = api.load("{location}")
print(model.predict({rows}))
```"""
SAME_ANSWER = "The baseline gives the same answer to every row."
OF_DROPPED_HEAD = "The accuracy is that of a head that was used in training and is not part of the model."
WORD_COUNTS = "The baseline is the cosine of the two texts' word counts."


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """A fine-tuned model, as the examples of its card need it."""

    about: About
    family: Family
    plain: bool
    """Whether the model has no bottleneck adapters."""
    folder: str
    """The model's name in calls of transformers."""

    def example(self, of_texts: str, of_pairs: str) -> str:
        """Return the example that fits the rows of the model's task."""
        return of_pairs if takes_pairs(self.about.task) else of_texts


def _without(facts: CardFacts) -> list[str]:
    """Return nothing: vectors are computed with sentence-transformers."""
    return []


def _by_pipeline(facts: CardFacts) -> list[str]:
    """Return how a pipeline of transformers answers, or why it would answer otherwise."""
    about, words = facts.about, CARDS[facts.about.task.kind]
    if about.cutting.pools_passages:
        return [FIRST_TOKENS.format(maximum_length=about.cutting.maximum_length)]
    if not facts.plain:
        return [OF_ADAPTERS]
    if PUBLISHED[about.task.kind].pools and about.pooling not in facts.family.poolings:
        return [OF_MEANS]
    call = facts.example(words.call, 'answer({"text": "A text.", "text_pair": "Another."})')
    example = BY_PIPELINE.format(pipeline=words.pipeline, folder=facts.folder, call=call)
    return [WITHOUT_CHAIN, example] if about.crf else [example]


def _questions(facts: CardFacts) -> list[str]:
    """Return which class of transformers loads a model of questions."""
    return [QUESTIONS]


def _choices(facts: CardFacts) -> list[str]:
    """Return which class of transformers loads a model of multiple choice, or why it would answer otherwise."""
    if facts.family.without_choices:
        return [NO_CHOICES.format(title=facts.family.title)]
    return [CHOICES if facts.plain else OF_ADAPTERS]


@dataclass(frozen=True, kw_only=True)
class CardWords:
    """Words of the cards of one kind of task."""

    pipeline: str = "text-classification"
    """Name of the transformers pipeline; the hub uses the same name for the task."""
    purpose: str
    """Words for what its models do; the hole `labels` is for the first labels."""
    rows: str = '["A text."]'
    """Example input for pipeline.api, except for tasks on pairs of texts."""
    call: str = 'answer("A text.")'
    """Example call of the pipeline, except for tasks on pairs of texts."""
    with_transformers: Callable[[CardFacts], list[str]] = _by_pipeline
    """Return paragraphs about what transformers does with the model."""
    truncates: bool = True
    """Whether the end of a long text is not read."""
    baseline: str = SAME_ANSWER
    """Sentences about the scores of the training and its baseline."""
    reproduces_scores: bool = True
    """Whether the saved model can compute the scores of its training."""


_VECTORS = CardWords(
    pipeline="sentence-similarity",
    purpose="makes vectors of texts whose cosines tell how similar two texts are",
    rows='[("A text.", "Another.")]',
    with_transformers=_without,
    baseline=WORD_COUNTS,
)
CARDS: dict[Kind, CardWords] = {
    "classification": CardWords(purpose="tells which of {labels} a text is"),
    "multilabel": CardWords(purpose="tells which of {labels} apply to a text (any number of them)"),
    "regression": CardWords(purpose="predicts a number for a text"),
    "ranking": CardWords(
        purpose="scores how well a text fits a query, to rank texts", rows='[("A query.", "A text.")]'
    ),
    "similarity": _VECTORS,
    "matching": _VECTORS,
    "relations": replace(
        _VECTORS,
        baseline=f"{OF_DROPPED_HEAD} {SAME_ANSWER}",
        reproduces_scores=False,
    ),
    "tags": CardWords(
        pipeline="token-classification",
        purpose="tags each word of a text with one of {labels}",
        rows='["A text of some words"]',
        call='answer("A text of some words")',
    ),
    "spans": CardWords(
        pipeline="question-answering",
        purpose="finds the answer to a question in a text",
        rows='[("What is asked?", "The text that holds the answer.")]',
        with_transformers=_questions,
        truncates=False,
    ),
    "choices": CardWords(
        pipeline="multiple-choice",
        purpose="chooses one of several texts to continue a text",
        rows='[{"text": "A text.", "choices": ["A choice.", "Another."]}]',
        with_transformers=_choices,
    ),
}
