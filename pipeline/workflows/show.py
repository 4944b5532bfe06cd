"""Print a corpus, its sentences and examples, or the rows that a training run saw, in a terminal."""

from pipeline.config.locations import with_absolute_locations
from pipeline.config.show import View
from pipeline.show.views import VIEWS


def show(config: View) -> None:
    """Print the view that `config` describes.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    VIEWS[type(config)](**vars(with_absolute_locations(config)))
