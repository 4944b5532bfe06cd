"""Settings of fine-tuning."""

from dataclasses import dataclass

from pipeline.config.checks import require, require_at_least
from pipeline.config.data import VocabularySettings
from pipeline.config.training import AdamW, LinearDecay, Placement


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """Fine-tune a pretrained encoder on GLUE tasks, each with several seeds."""

    checkpoint: str
    """Folder, URL or hf://OWNER/NAME of a published BERT, such as a run's export."""
    glue: str
    """Folder of the GLUE tasks in their official layout (CoLA/train.tsv, SST-2/…)."""
    task: tuple[str, ...]
    """Tasks by name: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, or glue for all that are in the folder; may be repeated."""
    epochs: int = 3
    """Times that each training row is seen."""
    rows_per_step: int = 32
    """Rows of one optimiser update; the last one of an epoch has what is left."""
    maximum_length: int = 128
    """Tokens of a row with its special tokens; the longer text of a pair is cut first."""
    seeds: int = 3
    """Runs of each task, with seeds 0, 1, …: the head's first weights, the order of rows and dropout."""
    output: str = "output"
    """Folder of results; what is there already is not trained again."""
    vocabulary: VocabularySettings = VocabularySettings()
    placement: Placement = Placement()
    optimizer: AdamW = AdamW(learning_rate=5e-5)
    schedule: LinearDecay = LinearDecay(warmup_share=0.1)

    def __post_init__(self) -> None:
        require(self.task != (), "task () names none: give --task NAME, such as --task sst2")
        require_at_least("epochs", self.epochs, 1)
        require_at_least("rows_per_step", self.rows_per_step, 1)
        require_at_least("maximum_length", self.maximum_length, 3)
        require_at_least("seeds", self.seeds, 1)
