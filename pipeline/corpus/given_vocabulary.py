"""Load the vocabulary that the settings name, without Ray."""

from collections.abc import Iterable

from pipeline.config.data import PRESET_KINDS, PRESET_SIZES, VocabularySettings
from pipeline.errors import ConfigError
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary


def given_vocabulary(settings: VocabularySettings) -> Vocabulary | None:
    """Return the vocabulary at settings.path, or None without a path.

    Raises ConfigError if a setting for training a vocabulary is also set. Raises the errors of `load_vocabulary`.
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
    """Raise ConfigError if a setting for training a vocabulary differs from the default and from all presets."""
    allowed: dict[str, Iterable[object]] = {
        "kind": PRESET_KINDS,
        "unused": {VocabularySettings.unused},
        "size": PRESET_SIZES,
    }
    for name, values in allowed.items():
        if (value := getattr(settings, name)) not in values:
            raise ConfigError(
                f"vocabulary.{name} ({value}) is for training a vocabulary, but vocabulary.path ({settings.path}) "
                "names an existing one: leave one of the two settings out"
            )
