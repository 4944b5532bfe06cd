"""The vocabulary that the settings name; no Ray is needed to read it."""

from pipeline.config.data import VocabularySettings
from pipeline.errors import ConfigError
from pipeline.presets import PRESETS
from pipeline.text.vocabulary import Vocabulary, load_vocabulary


def given_vocabulary(settings: VocabularySettings) -> Vocabulary | None:
    """The vocabulary that the settings name, if they name one.

    Raises ConfigError for what is of trained ones only, and ConfigError and DataError as load_vocabulary does.
    """
    if settings.path is None:
        return None
    refuse_training(settings)
    return load_vocabulary(
        settings.path,
        settings.lowercase,
        strip_accents=settings.strip_accents,
        chinese_characters=settings.chinese_characters,
    )


def refuse_training(settings: VocabularySettings) -> None:
    """Raise ConfigError where a vocabulary is given and something was set that only shapes a trained one; the sizes of presets nobody set."""
    unset = {
        "kind": {VocabularySettings.kind},
        "unused": {VocabularySettings.unused},
        "size": {preset.vocabulary.size for preset in PRESETS.values()},
    }
    for name, values in unset.items():
        if (value := getattr(settings, name)) not in values:
            raise ConfigError(
                f"vocabulary.{name} ({value}) is of a trained vocabulary, and vocabulary.path ({settings.path}) gives one: leave one of them out"
            )
