"""Read the encoder that fine-tuning starts from."""

from pipeline.config.finetune import Finetune
from pipeline.reporting import Report
from pipeline.train.initial import POOLER, Initial, read_initial


def read_encoder(config: Finetune, checkpoint: str, report: Report) -> Initial:
    """Read the published model `checkpoint`, which may differ from config.checkpoint, and copy it to the output folder.

    Raises CheckpointError if the model cannot be used, and ConfigError or DataError if its vocabulary cannot be used.
    """
    return read_initial(checkpoint, config.vocabulary, config.output, report, setting="checkpoint", used=(POOLER,))
