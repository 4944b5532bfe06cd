"""Show a corpus, its sentences and examples, or what a training run saw, in a terminal."""

from pipeline.config.locations import with_absolute_locations
from pipeline.config.show import View
from pipeline.show.views import VIEWS


def show(config: View) -> None:
    """Print the view that the settings are of. Raises PipelineError in one line for what the user can fix."""
    VIEWS[type(config)](**vars(with_absolute_locations(config)))
