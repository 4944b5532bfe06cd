"""Load the model of a checkpoint or of an exported folder, with all its heads."""

from dataclasses import dataclass
from typing import Any

from pipeline.config.model import Model
from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.model.families.table import family_of
from pipeline.model.weights import model_settings, published_names, vocabulary_size
from pipeline.objectives.contrastive import ContrastiveTexts
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.replaced import SHARING, ReplacedTokens
from pipeline.objectives.table import Pretraining
from pipeline.saved import checkpoints
from pipeline.saved.checkpoints import GENERATOR
from pipeline.saved.files import MOST_CONFIG, json_object
from pipeline.saved.tensors import read_tensors
from pipeline.train import checkpoint

CONFIG = "config.json"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A checkpoint's model, in evaluation mode and float32 on the CPU."""

    checkpoint: str
    model: Model
    vocabulary_size: int
    module: Pretraining


def load_trained(folder: str, *, fills_blanks: bool = False) -> Trained:
    """Load the model of a checkpoint or exported folder.

    Raises CheckpointError if the folder is damaged, if the architecture is unknown, or if `fills_blanks` is true and
    the model has no head for masked tokens.
    """
    if problem := storage.damage(folder):
        raise CheckpointError(f"checkpoint {folder} is damaged ({problem})")
    model = _read_model(storage.join(folder, CONFIG))[0]
    module, rows = load_module(folder, model)
    if fills_blanks and isinstance(module, ContrastiveTexts):
        raise CheckpointError(f"checkpoint {folder} has no head for masked tokens: give a pretraining run with one")
    return Trained(checkpoint=folder, model=model, vocabulary_size=rows, module=module)


def _read_model(location: str) -> tuple[Model, dict[str, Any]]:
    """Return the settings in a config.json, and all its fields.

    Raises CheckpointError if the file is unreadable or the family unknown.
    """
    try:
        config = json_object(storage.read_at_most(location, MOST_CONFIG))
        return model_settings(config), config
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error


def load_module(folder: str, model: Model) -> tuple[Pretraining, int]:
    """Load the weights of a published folder; return the module, in evaluation mode, and the number of word embeddings.

    If the folder has a generator in a subfolder, the model is ELECTRA's discriminator, and both models are loaded. An
    encoder without a masked-token head is loaded as a model of objective contrastive; the files do not contain the
    temperature. Raises CheckpointError if the weights do not fit the model.
    """
    family = family_of(model)
    try:
        tensors = read_tensors(storage.join(folder, checkpoints.WEIGHTS))
        rows = vocabulary_size(tensors, family)
        generator = storage.join(folder, GENERATOR, CONFIG)
        if storage.exists(generator):
            sharing = _read_model(storage.join(folder, CONFIG))[1].get(SHARING)
            module: Pretraining = ReplacedTokens.of(model, _read_model(generator)[0], rows, sharing)
        elif not any(name in tensors for name in published_names("masked_token_head.dense.weight", family)):
            module = ContrastiveTexts(model, rows)
        else:
            pair_head = "next_sentence_head.weight"
            pairs = "next_sentence_head" in family.names and published_names(pair_head, family)[0] in tensors
            decoder = "enhanced_decoder.positions"
            enhanced = decoder in family.names and f"{family.names[decoder]}.weight" in tensors
            module = MaskedTokens(model, rows, pairs=pairs, enhanced=enhanced)
        checkpoint.load_models(folder, module)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    return module.eval(), rows
