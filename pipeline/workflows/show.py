"""Print a corpus, its examples, or the rows that a training run saw, and draw pictures of corpora, runs and models."""

from pipeline.config.locations import with_absolute_locations
from pipeline.config.show import View
from pipeline.show.views import VIEWS


def show(config: View) -> None:
    """Print or draw the view that `config` describes.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    VIEWS[type(config)](**vars(with_absolute_locations(config)))
