"""The vocabulary in the folder of a run"""

from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.saved import run
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary


def vocabulary_of_run(folder: str) -> Vocabulary:
    """Load the vocabulary in a run's folder. Raises DataError if its files are damaged."""
    location = storage.join(folder, run.VOCABULARY)
    if problem := storage.damage(location):
        raise DataError(f"{location} is damaged ({problem}): the command that trained the run writes it again")
    return load_vocabulary(location, None)
