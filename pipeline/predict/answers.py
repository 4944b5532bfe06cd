"""Kept for models that MLflow registered, whose code imports these names from here; see `fine_tuned/answers.py`."""

from pipeline.fine_tuned.answers import answer_items, items_of

__all__ = ["answer_items", "items_of"]
