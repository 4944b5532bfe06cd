"""Read the encoder that a fine-tuning starts from."""

from pipeline.config.finetune import Finetune
from pipeline.reporting import Report
from pipeline.train.initial import POOLER, Initial, read_initial


def read_encoder(config: Finetune, checkpoint: str, report: Report) -> Initial:
    """Read a checkpoint's published model. Raises CheckpointError if it cannot be used."""
    return read_initial(checkpoint, config.vocabulary, config.output, report, setting="checkpoint", used=(POOLER,))
