"""Code of a logged MLflow model of a fine-tuned task ("models from code").

MLflow copies this file into the model, and executes the copy when the model is loaded.
"""

from typing import Any

import pandas as pd
import torch
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from pipeline.predict.answers import answer_items, items_of
from pipeline.train.tuned import load_tuned


class ServedTask(PythonModel):
    """Return one answer record per row of the input columns (texts, sentences or questions)."""

    def load_context(self, context: PythonModelContext) -> None:
        self.tuned = load_tuned(context.artifacts["model"])

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        columns = {name: _texts(model_input[name], None if name == "second" else "") for name in model_input.columns}
        return answer_items(
            self.tuned, items_of(self.tuned, columns), torch.device("cpu"), torch.autocast("cpu", enabled=False)
        ).to_pylist()


def _texts(column: pd.Series, missing: str | None) -> list[str | None]:
    """Return a column's texts, with `missing` for cells that pandas reads as NaN (empty cells of a CSV file)."""
    return [missing if pd.isna(value) else str(value) for value in column]


set_model(ServedTask())
