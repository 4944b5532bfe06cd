"""Prepare a corpus: sources -> shuffled document shards, a held-out set and a manifest."""

from pipeline.config.locations import with_absolute_locations
from pipeline.config.prepare import Prepare
from pipeline.corpus import prepare as preparation
from pipeline.corpus.prepared import Corpus
from pipeline.on_ray import cluster
from pipeline.reporting import Report


def prepare(config: Prepare, report: Report) -> Corpus:
    """Prepare the corpus, or continue a stopped preparation. Ray starts only if something is left to do.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    listing = preparation.list_sources(config.corpus, config.prepare, config.folder, report, config.exclude)
    if not preparation.finished_corpus(listing):
        cluster.connect(None)
    with cluster.ray_errors_as_cluster_lost():
        return preparation.prepare_listed(listing, report)
