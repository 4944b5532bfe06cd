"""RoBERTa with RMSNorm (Zhang and Sennrich 2019) instead of LayerNorm. transformers has none like it."""

from dataclasses import replace

from pipeline.model.families.roberta import ROBERTA

RMS_ROBERTA = replace(
    ROBERTA,
    name="rms-roberta",
    title="RMS-RoBERTa",
    fixed=ROBERTA.fixed | {"model_type": "rms-roberta"},
    in_transformers=False,
    class_prefix="RmsRoberta",
    architectures={use: f"Rms{name}" for use, name in ROBERTA.architectures.items()},
)
