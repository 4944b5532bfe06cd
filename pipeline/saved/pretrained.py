"""Load a pretrained model of any origin with its head for masked tokens."""

from dataclasses import dataclass

from pipeline.config.model import Model
from pipeline.model.masked_model import MaskedModel, PretrainedModule
from pipeline.model.weights import without_memory
from pipeline.saved.model import SavedModel
from pipeline.saved.weights import fill, read_usable, require_fitting_vocabulary
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A pretrained model, in evaluation mode and float32 on the CPU."""

    checkpoint: str
    model: Model
    vocabulary_size: int
    module: PretrainedModule


def load_published(saved: SavedModel, vocabulary: Vocabulary) -> tuple[Pretrained, set[str]]:
    """Load a pretrained model of any origin with its head for masked tokens.

    Also return our names of the parts that its files lack; their weights are arbitrary. Raises CheckpointError if the
    weights cannot be used or do not fit the vocabulary.
    """
    usable = read_usable(saved, vocabulary.size)
    require_fitting_vocabulary(saved.location, saved.location, usable.rows, vocabulary)
    state = usable.taken.state
    with without_memory():  # all weights are replaced below, so initialising them would waste time
        module = MaskedModel(saved.settings, usable.rows, enhanced="enhanced_decoder.positions.weight" in state)
    lacks = {name.rpartition(".")[0] for name in fill(module, state)}
    return Pretrained(
        checkpoint=saved.location, model=saved.settings, vocabulary_size=usable.rows, module=module.eval()
    ), lacks
