"""Load the model of a checkpoint, of an exported folder or of a folder that others published, with all its heads."""

from dataclasses import dataclass

from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.model.families.table import family_of
from pipeline.model.weights import published_names, uninitialized, vocabulary_size
from pipeline.objectives.contrastive import ContrastiveTexts
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.replaced import SHARING, ReplacedTokens
from pipeline.objectives.table import Pretraining
from pipeline.saved.checkpoints import CARD
from pipeline.saved.model import SavedModel, open_saved
from pipeline.saved.pretrained import Pretrained
from pipeline.saved.tensors import errors_with_location
from pipeline.train import checkpoint


@dataclass(frozen=True, kw_only=True)
class Trained(Pretrained):
    """A checkpoint's model with the module that pretraining trains, in evaluation mode and float32 on the CPU."""

    module: Pretraining


def load_trained(folder: str, *, fills_blanks: bool = False) -> Trained:
    """Load the model of a checkpoint or exported folder.

    Raises CheckpointError if the folder is damaged, if the architecture is unknown, or if `fills_blanks` is true and
    the model has no head for masked tokens.
    """
    if problem := storage.damage(folder, {CARD}):
        raise CheckpointError(f"checkpoint {folder} is damaged ({problem})")
    saved = open_saved(folder, verify=False)
    module, rows = load_module(saved)
    if fills_blanks and not module.fills_blanks:
        raise CheckpointError(f"checkpoint {folder} has no head for masked tokens: give a pretraining run with one")
    return Trained(checkpoint=folder, model=saved.settings, vocabulary_size=rows, module=module)


def load_module(saved: SavedModel) -> tuple[Pretraining, int]:
    """Load a model's weights; return the module, in evaluation mode, and the number of word embeddings.

    If the folder has a generator in a subfolder, the model is ELECTRA's discriminator, and both models are loaded. An
    encoder without a masked-token head is loaded as a model of objective contrastive; the files do not contain the
    temperature. Raises CheckpointError if the weights do not fit the model.
    """
    model, shapes = saved.settings, saved.shapes()
    family = family_of(model)
    rows = vocabulary_size(shapes, family)
    if saved.generator is not None:
        sharing = saved.config.get(SHARING)
        module: Pretraining = ReplacedTokens.of(model, saved.generator.settings, rows, sharing)
    elif not any(name in shapes for name in published_names("masked_token_head.dense.weight", family)):
        module = ContrastiveTexts(model, rows)
    else:
        pair_head = "next_sentence_head.weight"
        pairs = "next_sentence_head" in family.names and published_names(pair_head, family)[0] in shapes
        decoder = "enhanced_decoder.positions"
        enhanced = decoder in family.names and f"{family.names[decoder]}.weight" in shapes
        module = uninitialized(lambda: MaskedTokens(model, rows, pairs=pairs, enhanced=enhanced))
    errors_with_location(saved.location, checkpoint.load_models, saved.location, module)
    return module.eval(), rows
