"""Adapt an encoder to one's own text: prepare, train on masked words and on pairs of texts, embed, and search."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipeline.adapt.comparison import SHOWN, heldout_lines
from pipeline.adapt.heldout import hold_out
from pipeline.adapt.judged import judged_lines
from pipeline.adapt.queries import given_queries
from pipeline.adapt.record import agree, facts_of
from pipeline.adapt.start import AdaptStart, read_start
from pipeline.adapt.steps import (
    ADAPTED,
    Trainings,
    choose_trainings,
    corpus_folder,
    embeddings,
    most_trainings,
    pairs_for,
    search_of,
)
from pipeline.config.adapt import Adapt
from pipeline.config.locations import with_absolute_locations
from pipeline.config.prepare import Prepare
from pipeline.corpus.prepared import Corpus, load_corpus
from pipeline.embed.queries import query_vectors
from pipeline.embed.query_files import Query
from pipeline.embed.results import result_table
from pipeline.embed.vectors import Vectors, open_vectors
from pipeline.files import storage
from pipeline.files.locks import locked
from pipeline.on_ray import cluster
from pipeline.reporting import Report, from_here, to_paste
from pipeline.saved.run import is_finished, read_summary, run_folder
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.workflows.embed import embed_texts
from pipeline.workflows.prepare import prepare
from pipeline.workflows.pretrain import pretrain
from pipeline.workflows.search import find


@cluster.ray_errors_as_cluster_lost()
def adapt(config: Adapt, report: Report) -> None:
    """Adapt the encoder, or continue a stopped job, and report what searches find before and after.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    start, queries = read_start(config.init), given_queries(config)
    most_trainings(config, start)  # raises ConfigError, before hours of other steps
    storage.require_writable("output", config.output)
    with locked(config.output):
        agree(config.output, facts_of(config, start))
        corpus = _prepared(config, report)
        pairs = pairs_for(config, start, corpus)
        heldout = hold_out(corpus, config.output, pairs.pairs, CachedTokenizer(start.vocabulary), start.reads)
        chosen = choose_trainings(config, start, heldout.corpus, pairs)
        _train(config, chosen, report)
        vectors = _embedded(config, start, chosen, corpus, report)
        lines = (
            _judged(config, corpus, queries, vectors)
            if config.judgements
            else heldout_lines(config.output, heldout, embeddings(config, start, chosen.export), start, report)
        )
    for line in (*lines, *_found(config, queries, vectors, report)):
        report(line)
    report(f"\nencoder: {chosen.export}\n{_search_command(vectors[ADAPTED].folder)}")


def _search_command(vectors: str) -> str:
    """Return the command that searches the vectors of the adapted encoder."""
    return to_paste(f'python jobs/search.py --vectors {shlex.quote(from_here(vectors))} --queries "…"')


def _prepared(config: Adapt, report: Report) -> Corpus:
    """Return the given corpus if it is prepared already, else prepare it or continue its preparation."""
    folder = corpus_folder(config)
    given = config.corpus == (folder,)
    corpus = load_corpus(folder) if given else prepare(Prepare(corpus=config.corpus, folder=folder), report)
    agree(config.output, {"corpus.fingerprint": corpus.fingerprint})
    return corpus


def _train(config: Adapt, chosen: Trainings, report: Report) -> None:
    """Train the runs that are not finished, one after the other; a run that was stopped continues."""
    agree(config.output, chosen.steps)
    for note in chosen.notes:
        report(note)
    for run in chosen.runs:
        if is_finished(read_summary(run_folder(run)), run):
            report(f"run {run.name} is finished")
        else:
            pretrain(run, report)


def _embedded(
    config: Adapt, start: AdaptStart, chosen: Trainings, corpus: Corpus, report: Report
) -> dict[str, Vectors]:
    """Embed the text with both encoders, unless their vectors are there; return encoder -> vectors."""
    settings = embeddings(config, start, chosen.export)
    for each in settings.values():
        embed_texts(each, report, f"pieces of {corpus.counts['documents']:,} documents")
    return {encoder: open_vectors(each.output) for encoder, each in settings.items()}


def _judged(config: Adapt, corpus: Corpus, queries: Sequence[Query], vectors: Mapping[str, Vectors]) -> list[str]:
    """Return the lines of the table by the judgements of the settings."""
    assert config.judgements is not None
    return judged_lines(
        corpus,
        queries,
        config.judgements,
        vectors,
        lambda of_system, asked: query_vectors(search_of(config, of_system.folder), of_system, asked),
    )


def _found(config: Adapt, queries: Sequence[Query], vectors: Mapping[str, Vectors], report: Report) -> list[str]:
    """Return what the first given queries find with both encoders; nothing if there are judgements."""
    asked = [] if config.judgements else list(queries[:SHOWN])
    if not asked:
        return []
    found = {
        encoder: find(search_of(config, of_encoder.folder), of_encoder, asked, report)
        for encoder, of_encoder in vectors.items()
    }
    return [
        result_table(replace(query, text=f"\n{query.text} ({encoder})"), of_encoder[number])
        for number, query in enumerate(asked)
        for encoder, of_encoder in found.items()
    ]
