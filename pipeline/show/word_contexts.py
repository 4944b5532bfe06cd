"""Compare the vectors of one word in several sentences, by layer, and find their nearest neighbours.

Shapes: L + 1 layers (0: the embeddings), N contexts (sentences with the word), W words of all sentences.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.embed.loaded import LoadedEncoder
from pipeline.errors import ConfigError, DataError, listed
from pipeline.show.example_sentences import SENTENCES
from pipeline.show.style import BLUE, RED, plain, tidy, white_figure
from pipeline.tables import content

NEIGHBOURS = 3
"""Number of nearest words that are shown for each context."""
AROUND = 22
"""Number of characters of the sentence that are shown on each side of the word."""
WORD = re.compile(r"\w{4,}")
"""A word that may be shown as a neighbour. Most shorter words are function words, which say little."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """A sentence that contains the word. `meaning` is the word's meaning in it; empty if the file states none."""

    meaning: str
    sentence: str
    start: int
    """Position of the word's first character."""
    end: int
    """Position after its last character."""

    @property
    def short(self) -> str:
        """The word with the text around it."""
        before, after = self.sentence[: self.start], self.sentence[self.end :]
        left = before if len(before) <= AROUND else f"…{before[-AROUND:]}"
        right = after if len(after) <= AROUND else f"{after[:AROUND]}…"
        return f"{left}{self.sentence[self.start : self.end]}{right}"


@dataclass(frozen=True, kw_only=True)
class Contexts:
    """Similarities of a word's vectors in N contexts."""

    similarity: np.ndarray
    """float64 (L + 1, N, N): cosine between the word's vectors in two contexts, for each layer."""
    neighbours: tuple[tuple[str, ...], ...]
    """For each context, the nearest words from other contexts in the last layer, the nearest word first."""


def read_contexts(word: str, files: Sequence[str]) -> list[Context]:
    """Return the contexts of a word in files, or in the built-in sentences if there are no files.

    A line of a file is SENTENCE or MEANING<TAB>SENTENCE. Raises ConfigError if there are no files and the word has no
    built-in sentences. Raises DataError if fewer than two sentences contain the word.
    """
    if not files and word.lower() not in SENTENCES:
        raise ConfigError(
            f"word ({word}) has no built-in sentences: give --sentences FILE, or {' or '.join(SENTENCES)}"
        )
    rows = [_meaning_and_sentence(line) for file in files for line in content.lines(file) if line.strip()]
    contexts = [
        Context(meaning=meaning, sentence=sentence, start=match.start(), end=match.end())
        for meaning, sentence in (rows if files else SENTENCES[word.lower()])
        if (match := re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE))
    ]
    if len(contexts) < 2:
        raise DataError(
            f"word ({word}) is in {len(contexts)} of the {len(rows)} sentences of {listed(files)}: "
            "give at least two sentences with it"
        )
    return contexts


def _meaning_and_sentence(line: str) -> tuple[str, str]:
    meaning, tab, sentence = line.partition("\t")
    return (meaning.strip(), sentence.strip()) if tab else ("", line.strip())


def compare(model: LoadedEncoder, contexts: Sequence[Context]) -> Contexts:
    """Compute the word's vectors in all contexts with a model. Raises DataError if truncation removes the word."""
    layers = range(model.settings.layers + 1)
    states = model.hidden([context.sentence for context in contexts], layers)
    vectors, words = [], []
    for index, (context, hidden) in enumerate(zip(contexts, states, strict=True)):
        spans = model.tokenize(context.sentence).spans
        vector = _word_vector(hidden, spans, context.start, context.end)
        if vector is None:
            raise DataError(f"sentence {context.short!r} is too long: its word is not in the first {len(spans)} tokens")
        vectors.append(vector)
        words += [(index, *pair) for pair in _other_words(hidden[-1:], spans, context)]
    every = np.stack(vectors, axis=1)
    normed = _normed(every)
    return Contexts(similarity=np.einsum("lnd,lmd->lnm", normed, normed), neighbours=_neighbours(every[-1], words))


def _word_vector(hidden: np.ndarray, spans: np.ndarray, start: int, end: int) -> np.ndarray | None:
    """Return the mean vector (L + 1, width) of the tokens that overlap a span of characters; None if there are none."""
    inside = (spans[:, 0] < end) & (spans[:, 1] > start)
    return hidden[:, inside].mean(axis=1, dtype=np.float64) if inside.any() else None


def _normed(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _other_words(hidden: np.ndarray, spans: np.ndarray, context: Context) -> list[tuple[str, np.ndarray]]:
    """Return the other words of a sentence, in lower case, with their vectors in the last layer."""
    found = []
    for match in WORD.finditer(context.sentence):
        vector = _word_vector(hidden, spans, *match.span())
        if vector is not None and match.start() != context.start:
            found.append((match.group().lower(), vector[0]))
    return found


def _neighbours(vectors: np.ndarray, words: Sequence[tuple[int, str, np.ndarray]]) -> tuple[tuple[str, ...], ...]:
    """Return the NEIGHBOURS nearest distinct words of each context; `vectors` (N, width) has a row per context.

    Each of `words` is (index of its context, word, vector (width,)). Words of the context itself are left out, because
    attention mixes them into the vector. First, the mean of the contexts' vectors and the mean of the words' vectors
    are subtracted. All vectors share a large common part (Mu & Viswanath 2018), so without this step the same words
    would be nearest to all contexts.
    """
    centred = _normed(vectors - vectors.mean(axis=0))
    others = np.stack([vector for _, _, vector in words]) if words else np.zeros((0, vectors.shape[1]))
    cosines = centred @ _normed(others - others.mean(axis=0)).T if words else np.zeros((len(vectors), 0))
    nearest = []
    for index, row in enumerate(cosines):
        ranked = [words[number][1] for number in np.argsort(-row, kind="stable") if words[number][0] != index]
        nearest.append(tuple(dict.fromkeys(ranked))[:NEIGHBOURS])
    return tuple(nearest)


def by_meaning(similarity: np.ndarray, meanings: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean similarities of pairs with the same meaning, and of pairs with different meanings.

    Both are float64 (L + 1,). Values are NaN if there is no such pair.
    """
    same = np.array([[one == other for other in meanings] for one in meanings])
    once = np.triu(np.ones_like(same), 1)

    def mean(pairs: np.ndarray) -> np.ndarray:
        return similarity[:, pairs].mean(-1) if pairs.any() else np.full(len(similarity), np.nan)

    return mean(same & once), mean(~same & once)


def same_nearest(similarity: np.ndarray, meanings: Sequence[str]) -> int:
    """Return the number of contexts whose most similar other context has the same meaning; `similarity` is (N, N)."""
    others = np.where(np.eye(len(similarity), dtype=bool), -np.inf, similarity)
    return sum(meanings[index] == meanings[other] for index, other in enumerate(others.argmax(-1).tolist()))


def lines(word: str, contexts: Sequence[Context], trained: Contexts, random: Contexts | None) -> list[str]:
    """Return similarities by layer, and each context with its nearest words, as lines of text."""
    meanings = [context.meaning for context in contexts]
    models = {"": trained} | ({"random weights: ": random} if random else {})
    result = [f"{word!r} in {len(contexts)} sentences"]
    for name, measured in models.items():
        same, other = by_meaning(measured.similarity, meanings)
        if len(set(meanings)) > 1:
            right = same_nearest(measured.similarity[-1], meanings)
            result.append(f"{name}the most similar other sentence has the same meaning for {right} of {len(contexts)}")
            heading, values = "same meaning, other meaning", zip(same, other, same - other, strict=True)
        else:
            heading, values = "all pairs", zip(same, strict=True)
        result.append(f"{name}mean cosine by layer ({heading}{', difference' * (len(set(meanings)) > 1)})")
        result += [f"  layer {layer}  " + "  ".join(f"{v:6.3f}" for v in row) for layer, row in enumerate(values)]
    result.append("nearest words of other sentences, last layer")
    for context, nearest in zip(contexts, trained.neighbours, strict=True):
        result.append(f"  {context.meaning:8} {context.short}: {', '.join(nearest)}")
    return result


def draw(word: str, contexts: Sequence[Context], trained: Contexts, random: Contexts | None, name: str) -> Figure:
    """Draw the similarity by layer, and the similarities of all contexts in the last layer with their nearest words."""
    figure = white_figure(12.5, 1.6 + max(2.8, 0.36 * len(contexts)))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    _by_layer(left, [context.meaning for context in contexts], trained, random)
    _matrix(right, contexts, trained)
    figure.suptitle(plain(f"“{word}” in {len(contexts)} sentences — {name}"), fontsize="medium", fontweight="bold")
    return figure


def _by_layer(axes: Axes, meanings: Sequence[str], trained: Contexts, random: Contexts | None) -> None:
    """Draw the mean similarity of pairs by layer. Lines for random weights are dashed."""
    several = len(set(meanings)) > 1
    for measured, style, suffix in ((trained, "-o", ""), (random, "--", ", random weights")):
        if measured is not None:
            same, other = by_meaning(measured.similarity, meanings)
            label = "same meaning" if several else "all pairs"
            axes.plot(same, style, color=BLUE, linewidth=1.6, markersize=4, label=f"{label}{suffix}")
            if several:
                axes.plot(other, style, color=RED, linewidth=1.6, markersize=4, label=f"different meaning{suffix}")
    tidy(axes)
    axes.set(title="Mean cosine of two uses of the word", xlabel="layer (0: embeddings)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False, fontsize="small")


def _matrix(axes: Axes, contexts: Sequence[Context], trained: Contexts) -> None:
    """Draw the cosines of all pairs in the last layer, with sentences on the left and nearest words on the right."""
    values = trained.similarity[-1]
    image = axes.imshow(values, cmap="Blues", vmin=float(values.min()), vmax=1.0, aspect="auto")
    numbers = range(len(contexts))
    tag = [f"{context.meaning}: " * bool(context.meaning) + context.short for context in contexts]
    axes.set_yticks(numbers, [plain(text) for text in tag], fontsize="x-small")
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.set_title("Cosine of all pairs, last layer; nearest words of other sentences", fontsize="medium")
    for index, nearest in enumerate(trained.neighbours):
        axes.text(len(contexts) - 0.3, index, plain(", ".join(nearest)), va="center", fontsize="x-small")
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((0.2, -0.12, 0.6, 0.05)), orientation="horizontal")
    bar.ax.tick_params(labelsize="x-small")
