"""The teacher of a distillation: read and check it once, load it in every worker, and start the student from it."""

from dataclasses import dataclass, replace

import torch

from pipeline.config.data import VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import chosen_layers
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.errors import CheckpointError, ConfigError
from pipeline.files import storage
from pipeline.model.families.table import family_of
from pipeline.model.weights import pretrained_parts, published_names
from pipeline.objectives.masked import MaskedTokens
from pipeline.reporting import Report
from pipeline.saved.checkpoints import GENERATOR
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial, load_initial, read_initial

SETTING, HEAD = "objective.teacher", "masked_token_head."


@dataclass(frozen=True, kw_only=True)
class WordTeacher:
    """A pretrained model as teacher, with its masked-token head."""

    initial: Initial

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the published config and weight files."""
        return self.initial.fingerprint

    def load(self, device: torch.device) -> MaskedTokens:
        """Return the teacher on a device, in evaluation mode and without gradients."""
        size, random = self.initial.vocabulary.size, torch.Generator().manual_seed(0)
        module = MaskedTokens(self.initial.model, size, random, pairs=False)
        load_initial(self.initial, module)
        return module.to(device).eval().requires_grad_(False)


def with_teacher(config: Pretrain, initial: Initial | None, report: Report) -> tuple[Pretrain, WordTeacher]:
    """Return the settings, completed from the teacher of masked words, and the teacher.

    Set objective.cosine_weight. If neither init nor vocabulary.path is set, also set vocabulary.path. `initial` is the
    model at config.init. Raises ConfigError if the teacher does not fit the run, and CheckpointError if the teacher
    cannot be used.
    """
    objective = config.objective
    if not objective.teacher:
        raise ConfigError(
            f"{SETTING} is not set: give the model to learn from, such as a run's export or "
            "hf://google-bert/bert-base-uncased"
        )
    teacher = _read_teacher(objective.teacher, config.vocabulary, config.output, report)
    _require_positions(config, objective.teacher, teacher)
    objective = objective.for_widths(config.model.width, teacher.model.width)
    if objective.starts_from_teacher and initial is None:
        chosen_layers(config.model.layers, teacher.model.layers)  # raises ConfigError for too few layers
    own = initial.vocabulary if initial else given_vocabulary(config.vocabulary)
    if own is None:
        config = replace(config, vocabulary=replace(config.vocabulary, path=objective.teacher))
    elif own.fingerprint != teacher.vocabulary.fingerprint:
        raise ConfigError(
            f"{SETTING} {objective.teacher} has a {_about(teacher.vocabulary)}, and "
            f"{config.vocabulary.path or config.init} has a {_about(own)}: teacher and student need the same "
            "vocabulary; leave vocabulary.path and init out to use the teacher's"
        )
    return replace(config, objective=objective), WordTeacher(initial=teacher)


def _read_teacher(location: str, vocabulary: VocabularySettings, output: str, report: Report) -> Initial:
    """Read the model at `location`, and copy it into the output folder unless an intact copy exists.

    `vocabulary` has the run's vocabulary settings. Raises CheckpointError if the model cannot be used, or has
    no masked-token head.
    """
    lines: list[str] = []
    teacher = read_initial(
        location, replace(vocabulary, path=None), output, lines.append, setting=SETTING, used=(HEAD,)
    )
    missing = set(teacher.missing)
    family = family_of(teacher.model)
    head = [name for name in pretrained_parts(teacher.model, 1).state_dict() if name.startswith(HEAD)]
    if lacking := [name for part in head for name in published_names(part, family) if name in missing]:
        generator = GENERATOR in storage.children(location)
        instead = (
            f"{storage.join(location, GENERATOR)} has one" if generator else "give a pretrained model that has one"
        )
        raise CheckpointError(
            f"{SETTING} {location} has no masked-token head ({lacking[0]} is missing), so it predicts no tokens: "
            f"{instead}"
        )
    decoder = "enhanced_decoder.positions"
    if decoder in family.names and f"{family.names[decoder]}.weight" not in missing:
        raise CheckpointError(
            f"{SETTING} {location} predicts masked tokens with an enhanced mask decoder, which a teacher cannot have: "
            "give a model that was trained with objective.decoder plain"
        )
    for line in lines:
        report(line)
    return teacher


def _require_positions(config: Pretrain, location: str, teacher: Initial) -> None:
    """Raise ConfigError if the run's sequences may have more tokens than the teacher has positions."""
    for phase in config.all_phases:
        if phase.sampling.maximum_length > teacher.model.maximum_positions:
            raise ConfigError(
                f"{phase.names.maximum_length} ({phase.sampling.maximum_length}) must be at most the "
                f"{teacher.model.maximum_positions} positions of {SETTING} {location}"
            )


def _about(vocabulary: Vocabulary) -> str:
    """Describe a vocabulary for messages."""
    case = "uncased" if vocabulary.lowercase else "cased"
    return f"vocabulary of {vocabulary.size:,} entries ({vocabulary.kind}, {case}, {vocabulary.fingerprint[:8]})"
