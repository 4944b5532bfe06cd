"""Kept for models that MLflow registered, whose code imports this name from here; see `fine_tuned/model.py`."""

from pipeline.fine_tuned.model import TunedModel, open_tuned

__all__ = ["load_tuned"]


def load_tuned(location: str) -> TunedModel:
    """Load a fine-tuned model from its folder."""
    return open_tuned(location)
