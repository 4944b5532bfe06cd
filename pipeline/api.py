"""Use an encoder in Python, on one device and without Ray: load, inspect, embed, fill blanks, fine-tune, predict.

from pipeline import api

model = api.load("output/runs/NAME")
model.embed(["a text", "another"])
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

from pipeline.config.adapters import NoAdapter
from pipeline.embed.loaded import Device, Guesses, LoadedEncoder, Text, Tokens, load_as, of_tuned
from pipeline.errors import ConfigError
from pipeline.export.tuned_card import tuned_files
from pipeline.files import storage
from pipeline.files.locations import absolute
from pipeline.fine_tuned.tuned import TunedModel, has_vectors, save_tuned, trained_recipe
from pipeline.reporting import Report, Waiting, beating, no_op, print_line
from pipeline.saved.recipe import VectorRecipe

__all__ = ["Device", "Guesses", "Kind", "LoadedModel", "Text", "Tokens", "load"]

Kind = Literal["classification", "multilabel", "regression"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LoadedModel(LoadedEncoder):
    """An encoder in evaluation mode that can be fine-tuned and, once it is, predicts.

    `fit` and `predict` truncate texts as the task says, and do not read "[MASK]" as the mask token.
    """

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Scores {split: {metric: value}} of a model that this project fine-tuned; empty for other models."""
        return self.tuned.about.lineage.get("scores", {}) if self.tuned else {}

    def predict(self, rows: Sequence[Text | tuple[str, list[str]] | Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return one answer per row, a dictionary with the columns that jobs/predict.py writes.

        A row is one of:

        - a text
        - a pair of texts; if the task is questions, the pair is (question, context)
        - for multiple choice, a text and a list of choices
        - a dictionary with the keys "text" and "second"
        - a dictionary with the keys "text" and "choices", a list
        - a dictionary with the keys "question" and "context"
        - a dictionary with the key "words"

        If a text of a row is empty, all values of the row's answer are None. The keys of an answer depend on the kind
        of task:

        - classification: label, probability, probabilities
        - multilabel: labels, probabilities
        - regression: score
        - similarity: cosine
        - tags: words, tags, probabilities; and intent, for models that learnt intents
        - questions: answer, start, end, probability
        - multiple choice: choice (its number, from 0), probability, probabilities

        Raises ConfigError for a model that was not fine-tuned, and DataError for invalid rows.
        """
        # Imported here because this import loads scikit-learn, which takes a second and is not needed for vectors.
        from pipeline.predict.rows import predict_rows

        if self.tuned is None:
            raise ConfigError(
                f"{self.location} was not fine-tuned: .fit(texts, labels) returns a model that predicts, and .fill "
                "predicts the words at [MASK]"
            )
        return predict_rows(self.tuned, rows, self.device)

    def fit(
        self,
        texts: Sequence[Text],
        labels: Sequence[Any],
        *,
        kind: Kind = "classification",
        dev: tuple[Sequence[Text], Sequence[Any]] | None = None,
        epochs: int = 3,
        rows_per_step: int = 32,
        learning_rate: float | None = None,
        seed: int = 0,
        report: Report | None = None,
    ) -> "LoadedModel":
        """Fine-tune a copy of the model on texts and labels, and return the copy; this model does not change.

        `embed` of the copy gives the mean of its last hidden states, scaled to length 1. The copy does not keep the
        other parts of this model's recipe, such as prompts or a linear layer, because `save` does not write them.

        A label is a text, number or truth value; if `kind` is multilabel, each text has a list of labels. Predicted
        labels are of the same type, also after `save` and `load`; labels of mixed types become texts. If
        `learning_rate` is None, the learning rate depends on the encoder's width. `report=print` shows progress;
        without it, work of more than five seconds is announced.

        `dev` is (texts, labels). The `scores` of the returned model are measured on `dev`. If `dev` is None, the scores
        are measured on the training rows, so they say little about other texts.

        Raises DataError for invalid rows, and ConfigError for invalid settings.
        """
        from pipeline.finetune.lists import Lists, fit_lists  # imported here for the same reason as in `predict`

        lists, work = Lists(texts=texts, labels=labels, dev=dev), "fine-tuning (report=print shows more)"
        with nullcontext() if report else beating(Waiting(print_line, work).beat):
            tuned = fit_lists(
                self.encoder, self.settings, self.vocabulary, lists, kind=kind, epochs=epochs,
                rows_per_step=rows_per_step, learning_rate=learning_rate, seed=seed, device=self.device,
                report=report or no_op, checkpoint=self.location,
            )  # fmt: skip
        return of_tuned(LoadedModel, self.location, tuned, self.device, _saved_recipe(tuned))

    def save(self, folder: str) -> None:
        """Write a fine-tuned model to a new folder, which `load`, transformers and jobs/predict.py can read.

        Raises ConfigError if the folder exists or the model was not fine-tuned.
        """
        target = absolute(folder)
        tuned = self.tuned
        if tuned is None:
            raise ConfigError(
                f"{self.location} was not fine-tuned, so it has nothing new to save: call .fit(texts, labels) first"
            )
        if storage.exists(target):
            raise ConfigError(f"{target} exists already: give a new folder")
        files = tuned_files(tuned.about, self.settings, plain=tuned.bottleneck is None)
        adapter = tuned.bottleneck or NoAdapter()
        save_tuned(target, tuned.module.cpu(), tuned.about, self.settings, self.vocabulary, adapter, files)
        tuned.module.to(self.device)


def load(location: str, device: Device = "auto") -> LoadedModel:
    """Load an encoder from a folder, a run, or the Hugging Face hub (hf://OWNER/NAME).

    A folder holds an export, a fine-tuned model, or a model in the file layout of Hugging Face or google-research/bert.
    From a run, the newest undamaged checkpoint is loaded. `device` auto: a GPU if the process sees one, else the CPU.
    Raises ConfigError or CheckpointError, with a one-line message, if the location has no such model.
    """
    return load_as(LoadedModel, location, device)


def _saved_recipe(tuned: TunedModel) -> VectorRecipe:
    """Return the recipe that `load` reads from a fine-tuned model that was saved."""
    recipe = trained_recipe(tuned.about)
    if not has_vectors(tuned.about):
        return recipe
    return replace(recipe, maximum_length=tuned.about.cutting.maximum_length or tuned.model.maximum_positions)
