"""The vocabulary of a run: the given one, or one trained once on the prepared corpus."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline import storage
from pipeline.config import VocabularySettings
from pipeline.corpus.prepare import Corpus, read_window
from pipeline.errors import DataError
from pipeline.text.vocabulary import Vocabulary, load_vocabulary, save_vocabulary, train_vocabulary


def given_vocabulary(settings: VocabularySettings) -> Vocabulary | None:
    """The vocabulary that the settings name, if they name one. Raises ConfigError and DataError as load_vocabulary does."""
    return load_vocabulary(settings.path, settings.lowercase) if settings.path is not None else None


def trained_vocabulary(settings: VocabularySettings, corpus: Corpus, output: str, report: Callable[[str], None]) -> Vocabulary:
    """The vocabulary trained on the corpus, now unless that was done before. Raises DataError when it is damaged."""
    lowercase = settings.lowercase is not False
    kind = "uncased" if lowercase else "cased"
    name = f"{corpus.fingerprint[:12]}-{settings.size}-{kind}-{settings.training_characters}"
    folder = storage.join(output, "vocabularies", name)
    with storage.locked(f"{folder}.lock"):  # two runs may want the same one at once
        publish_unless_there(settings, corpus, folder, report)
    if problem := storage.damage(folder):
        raise DataError(f"vocabulary {folder} is damaged ({problem}); delete that folder and it is trained again")
    return load_vocabulary(folder, lowercase)


def publish_unless_there(settings: VocabularySettings, corpus: Corpus, folder: str, report: Callable[[str], None]) -> None:
    """Train a vocabulary into a folder that has none."""
    lowercase = settings.lowercase is not False
    if not storage.exists(storage.join(folder, storage.MANIFEST)):
        report(f"vocabulary: training {settings.size:,} {'uncased' if lowercase else 'cased'} entries")
        vocabulary = train_vocabulary(texts_of(corpus, settings.training_characters), size=settings.size, lowercase=lowercase)
        with tempfile.TemporaryDirectory(prefix="bertstream-vocabulary-") as temporary:
            save_vocabulary(vocabulary, Path(temporary), maximum_length=512)
            storage.publish(Path(temporary), folder, {"corpus": corpus.fingerprint})


def texts_of(corpus: Corpus, characters: int) -> Iterator[str]:
    """Texts of the first training windows, a random sample as documents lie in shuffled order, up to about `characters`."""
    for window in corpus.train:
        yield from read_window(corpus, window).column("text").to_pylist()
        characters -= window.characters
        if characters <= 0:
            return
