"""Code of a logged MLflow model ("models from code").

MLflow copies this file into the model, and executes the copy when the model is loaded.
"""

from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from pipeline.errors import ConfigError
from pipeline.export.inference import TEXTS_AT_ONCE, embeddings, encode, fill_masks, read_tokenizer
from pipeline.export.trained import load_trained
from pipeline.text.vocabulary_loading import load_vocabulary

TASKS = ("fill-mask", "embeddings")


class Served(PythonModel):
    """Return one answer for each text in the column `text`.

    The parameter `task` sets the kind of answer: guesses for each [MASK] (`fill-mask`, the default), or one vector
    (`embeddings`).
    """

    def load_context(self, context: PythonModelContext) -> None:
        folder = context.artifacts["model"]
        self.trained = load_trained(folder)
        self.vocabulary = load_vocabulary(folder, None)
        self.tokenizer = read_tokenizer(folder, self.trained.model.maximum_positions)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> list[Any]:
        settings = params or {}
        task, top = settings.get("task", TASKS[0]), settings.get("top", 5)
        if task not in TASKS:
            raise ConfigError(f"task ({task}) must be one of {', '.join(TASKS)}")
        # pandas reads an empty cell of a CSV file as NaN
        texts = ["" if pd.isna(text) else str(text) for text in model_input["text"]]
        answers: list[Any] = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            batch = encode(texts[start : start + TEXTS_AT_ONCE], self.tokenizer, self.vocabulary.mask_id)
            answers += (
                embeddings(self.trained, batch).tolist()
                if task == "embeddings"
                else fill_masks(self.trained, batch, self.vocabulary, top)
            )
        return answers


set_model(Served())
