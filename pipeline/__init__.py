"""A data and training pipeline for BERT-family encoders on Ray."""

from pipeline.environment import set_torch_defaults

set_torch_defaults()
