"""Prepare raw text for pretraining: sources -> shuffled document shards, a held-out set and a manifest.

    python jobs/prepare.py --folder corpora/builtin
    python jobs/prepare.py --corpus books/ --corpus 'https://example.org/dump.txt.gz' --folder corpora/mine

The same command again continues a preparation that was stopped, and does nothing where it is finished.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.data import Preparation
from pipeline.config.locations import Location, SourceText, with_absolute_locations
from pipeline.errors import PipelineError


@dataclass(frozen=True, kw_only=True)
class Prepare:
    corpus: tuple[SourceText, ...] = ()
    """A file, folder, glob or URL (https://, s3://, gs://, hf://); may be repeated. None: the built-in corpus. Options
    follow it, as in PATH::format=NAME (recognised are wikipedia-dump, wikiextractor, gutenberg, bookscorpus, jsonl,
    parquet and text, and only where asked for sentences and parquet-sentences), ::column=NAME of the text in JSON lines
    and Parquet, ::language=CODE (else what the files say, or en), and ::weight=TIMES that a document occurs in an epoch
    (1)."""
    folder: Location
    """Folder or URL of the prepared corpus."""
    prepare: Preparation = Preparation()


def main(arguments: Sequence[str]) -> int:
    """Parse, prepare and print a summary; 0 when the corpus is ready, 2 for what the user can fix."""
    from pipeline.config.command import Command
    from pipeline.environment import set_ray_defaults
    from pipeline.stopping import exit_code

    try:
        config = Command(prog="jobs/prepare.py", about=str(__doc__), settings=Prepare).read(arguments)
        config = with_absolute_locations(config)
        set_ray_defaults()
        from pipeline import cluster
        from pipeline.corpus.prepare import finished_corpus, prepare
        from pipeline.corpus.summary import corpus_text

        if not finished_corpus(config.corpus, config.prepare, config.folder):
            cluster.connect(None)
        with cluster.ray_errors_as_cluster_lost():
            corpus = prepare(config.corpus, config.prepare, config.folder, report=lambda line: print(line, flush=True))
        print(f"\n{corpus_text(corpus)}")
        return 0
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the same command continues", file=sys.stderr)
        return exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
