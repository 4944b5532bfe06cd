"""Kept for models that MLflow registered, whose code imports this name from here; see `fine_tuned/tuned.py`."""

from pipeline.fine_tuned.tuned import load_tuned

__all__ = ["load_tuned"]
