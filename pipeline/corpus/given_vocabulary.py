"""Load the vocabulary that the settings name, without Ray."""

from collections.abc import Iterable

from pipeline.config.data import PRESET_KINDS, PRESET_SIZES, VocabularySettings
from pipeline.errors import ConfigError
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary


def given_vocabulary(settings: VocabularySettings) -> Vocabulary | None:
    """Return the vocabulary that the settings name, or None.

    Raises ConfigError for settings that need a trained vocabulary, and ConfigError and DataError as load_vocabulary
    does.
    """
    if settings.path is None:
        return None
    _refuse_training(settings)
    return load_vocabulary(
        settings.path,
        settings.lowercase,
        strip_accents=settings.strip_accents,
        chinese_characters=settings.chinese_characters,
    )


def _refuse_training(settings: VocabularySettings) -> None:
    """Raise ConfigError if a vocabulary is given with a setting of trained ones, other than a preset's."""
    unset: dict[str, Iterable[object]] = {
        "kind": PRESET_KINDS,
        "unused": {VocabularySettings.unused},
        "size": PRESET_SIZES,
    }
    for name, values in unset.items():
        if (value := getattr(settings, name)) not in values:
            raise ConfigError(
                f"vocabulary.{name} ({value}) is of a trained vocabulary, and vocabulary.path ({settings.path}) "
                "gives one: "
                "leave one of them out"
            )
