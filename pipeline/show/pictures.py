"""Draw pictures of a model, of runs and of a corpus, and print what they show, one function per picture."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.pictures import Attention, Corpus, Curve, Heads, Loss, Map, Picture, Ranks, Resumed, Store, Word
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.corpus.prepared import load_corpus
from pipeline.embed.encoders import scaled
from pipeline.embed.loaded import LoadedEncoder
from pipeline.embed.loaded import load as load_encoder
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.evaluation.heldout import heldout_batches, unigram_counts
from pipeline.evaluation.token_frequency import heldout_loss_by_frequency
from pipeline.saved.run import recorded_run, settings_of
from pipeline.show import (
    corpus_sources,
    head_lines,
    heads,
    loss_by_frequency,
    rank_changes,
    run_difference,
    text_map,
    word_contexts,
)
from pipeline.show.model_texts import attention_of_texts, cut_texts, random_weights
from pipeline.show.run_points import name_of, newest_losses, read_points
from pipeline.show.style import require_picture, write_picture
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.tracking.curves import learning_curve
from pipeline.train.checkpoint import read_state
from pipeline.train.hardware import autocast_of
from pipeline.train.run_stream import stream_of_run

CONSOLE = Console(highlight=False, soft_wrap=True)
ROWS_AT_ONCE = 32
"""Held-out examples per forward pass."""


def _heads(checkpoint: str, text: str | None, texts: int, length: int, picture: str) -> None:
    require_picture(picture)
    model = load_encoder(checkpoint)
    tokens, first, separator = model.vocabulary.tokens, model.vocabulary.cls_id, model.vocabulary.sep_id
    with CONSOLE.status(f"reading {texts} texts"):
        chosen = cut_texts(model, text, texts, length, heads.LEAST_TOKENS)
        measured = heads.head_shares(attention_of_texts(model, chosen), separator, tokens[separator], tokens[first])
    _show(heads.lines(measured), heads.draw(measured, f"Attention heads of {_short(checkpoint)}"), picture)


def _attention(checkpoint: str, sentence: str, layer: int, head: int, picture: str) -> None:
    require_picture(picture)
    model = load_encoder(checkpoint)
    weights = head_lines.head_weights(model.attentions(sentence), layer, head)
    pieces = readable(model, sentence)
    title = f"{_short(checkpoint)}\nlayer {layer}, head {head}"
    _show(head_lines.lines(weights, pieces), head_lines.draw(weights, pieces, title), picture)


def readable(model: LoadedEncoder, sentence: str) -> list[str]:
    """Return the tokens of a sentence as readable texts, with ## before a token that continues a word."""
    tokens = model.tokenize(sentence)
    shown = []
    for piece, (start, end) in zip(tokens.pieces, tokens.spans.tolist(), strict=True):
        continues = start > 0 and sentence[start - 1 : start + 1].isalnum()
        shown.append(f"{'##' * continues}{sentence[start:end].strip()}" if end > start else piece)
    return shown


def _word(checkpoint: str, word: str, sentences: tuple[str, ...], before: bool, picture: str) -> None:
    require_picture(picture)
    contexts = word_contexts.read_contexts(word, sentences)
    model = load_encoder(checkpoint)
    trained = word_contexts.compare(model, contexts)
    random = word_contexts.compare(random_weights(model), contexts) if before else None
    figure = word_contexts.draw(word, contexts, trained, random, _short(checkpoint))
    _show(word_contexts.lines(word, contexts, trained, random), figure, picture)


def _map(
    checkpoint: str, file: str, text: str, label: str, method: str, rows: int, seed: int, before: bool, picture: str
) -> None:
    require_picture(picture)
    texts, labels = text_map.read_labelled(file, text, label, rows, seed)
    model = scaled(load_encoder(checkpoint))
    models = {_short(checkpoint): model} | ({"random weights": random_weights(model)} if before else {})
    with CONSOLE.status(f"reading {len(texts):,} texts"):
        maps = {name: text_map.text_map(one.embed(texts), labels, method, seed) for name, one in models.items()}
    title = f"{len(texts):,} texts of {name_of(file)}, {'principal components' if method == 'pca' else 't-SNE'}"
    _show(text_map.lines(maps, labels), text_map.draw(maps, labels, title), picture)


def _resumed(run: str, other: str, tracking: Store, picture: str) -> None:
    require_picture(picture)
    names = (name_of(run), name_of(other))
    one, two = (read_points(folder, tracking.uri) for folder in (run, other))
    measured = run_difference.run_difference(one, two, names)
    _show(run_difference.lines(measured, names), run_difference.draw(measured, names), picture)


def _curve(run: str, tracking: Store, picture: str) -> None:
    require_picture(picture)
    points = read_points(run, tracking.uri)
    figure = learning_curve(name_of(run), points)
    if figure is None:
        raise ConfigError(f"run {run} has logged no loss yet: wait for its first progress line")
    _show(newest_losses(points), figure, picture)


def _corpus(folder: str, vocabulary: VocabularySettings, sampling: Sampling, windows: int, picture: str) -> None:
    require_picture(picture)
    corpus, given = load_corpus(folder), given_vocabulary(vocabulary)
    with CONSOLE.status(f"making the rows of {min(windows, len(corpus.train))} windows"):
        fill = corpus_sources.row_fill(corpus, given, sampling, windows) if given else None
    title = f"Corpus {_short(folder)}: {corpus.counts['characters']:,} characters"
    _show(corpus_sources.lines(corpus, fill), corpus_sources.draw(corpus, fill, title), picture)


def _loss(run: str, rows: int, picture: str) -> None:
    require_picture(picture)
    recorded, model = recorded_run(run), load_encoder(run)
    settings = stream_of_run(run, recorded)
    if model.pretrained is None or "masked_token_head" in model.lacks:
        raise CheckpointError(f"{run} has no head for masked tokens: name the folder of a pretraining run")
    corpus, tokenizer = settings.corpus, CachedTokenizer(settings.vocabulary)
    sampling = settings_of(recorded).phase_at(read_state(model.pretrained.checkpoint).step - 1).sampling
    with CONSOLE.status(f"reading {rows:,} held-out examples"):
        batches = heldout_batches(corpus, tokenizer, sampling, rows=rows, rows_per_batch=ROWS_AT_ONCE, rank=0, world=1)
        if not batches:
            raise DataError("the corpus has no held-out part: prepare it with prepare.heldout_share above 0")
        measured = heldout_loss_by_frequency(
            model.pretrained.module,
            batches,
            unigram_counts(corpus, tokenizer, settings.vocabulary.size),
            world=1,
            device=model.device,
            autocast=autocast_of("float32", model.device),
        )
    title = f"Held-out masked loss of {name_of(run)} by frequency"
    _show(loss_by_frequency.lines(measured), loss_by_frequency.draw(measured, title), picture)


def _ranks(before: str, after: str, query: str, top: int, picture: str) -> None:
    require_picture(picture)
    both = rank_changes.open_both(before, after)
    name = _short if _short(before) != _short(after) else str
    with CONSOLE.status("embedding the query"):
        one, two = (
            rank_changes.ranking(vectors, query, name(folder))
            for vectors, folder in zip(both, (before, after), strict=True)
        )
    rank_changes.require_same_texts(one, two)
    _show(rank_changes.lines(query, one, two, top), rank_changes.draw(query, one, two, top), picture)


def _short(location: str) -> str:
    """Return the last two names of a path or URL."""
    return "/".join(location.rstrip("/").rsplit("/", 2)[-2:])


def _show(lines: Sequence[str], figure: Figure, picture: str) -> None:
    """Print lines, write the picture, and print its location."""
    CONSOLE.print(Text("\n".join(lines)))
    write_picture(figure, picture)
    CONSOLE.print(Text(f"\npicture: {picture}"))


PICTURES: dict[type[Picture], Callable[..., None]] = {
    Heads: _heads,
    Attention: _attention,
    Word: _word,
    Map: _map,
    Resumed: _resumed,
    Curve: _curve,
    Corpus: _corpus,
    Loss: _loss,
    Ranks: _ranks,
}
"""Settings type -> function that prints and draws the picture."""
