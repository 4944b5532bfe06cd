"""The stream that a recorded run reads: its corpus, vocabulary, sampling, batches and seed."""

from typing import Any

from pipeline.corpus.prepared import load_corpus
from pipeline.corpus.stream import StreamSettings
from pipeline.errors import DataError
from pipeline.saved import run
from pipeline.saved.run_vocabulary import vocabulary_of_run


def stream_of_run(folder: str, recorded: dict[str, Any]) -> StreamSettings:
    """Return the stream settings of a run's first phase; `recorded` is the content of run.json.

    Raises DataError if the fingerprint of the recorded corpus has changed.
    """
    identity = recorded["identity"]
    corpus = load_corpus(recorded["corpus"])
    if corpus.fingerprint != identity["corpus.fingerprint"]:
        raise DataError(
            f"{corpus.folder} is no longer the corpus of this run: its fingerprint is {corpus.fingerprint[:12]}, "
            f"the run's is {identity['corpus.fingerprint'][:12]}; prepare it from the same inputs again"
        )
    config = run.settings_of(recorded)
    return StreamSettings(
        corpus=corpus,
        vocabulary=vocabulary_of_run(folder),
        sampling=config.sampling,
        batch=config.batch,
        seed=config.seed,
    )
