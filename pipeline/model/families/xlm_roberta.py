"""XLM-R (Conneau et al. 2020), as transformers publishes it: RoBERTa's tensors under other class names."""

from dataclasses import replace

from pipeline.model.families.roberta import ROBERTA

XLM_ROBERTA = replace(
    ROBERTA,
    name="xlm-roberta",
    title="XLM-R",
    fixed=ROBERTA.fixed | {"model_type": "xlm-roberta"},
    class_prefix="XLMRoberta",
    architectures={use: f"XLM{name}" for use, name in ROBERTA.architectures.items()},
)
