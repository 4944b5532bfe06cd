"""Contrastive fine-tuning for few labels (SetFit, Tunstall et al. 2022, arXiv:2209.11055).

The encoder is trained on pairs of rows: the cosine of their vectors should be 1 for rows of the same class, else 0.
Then a logistic regression on the vectors of the labelled rows becomes the head.
Shapes: R rows, C classes, W width.
"""

import numpy as np
import pyarrow as pa
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from pipeline.batch import collate_labelled
from pipeline.config.similarity import Similarity
from pipeline.errors import DataError
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.similarity import SimilarityTask
from pipeline.tasks.schema import SECOND_LENGTH
from pipeline.text.randomness import numbered_generator

PAIRING = 1 << 33
"""Number of the random stream that draws the pairs of a trial."""
MOST_PAIRS = 1_000_000
"""Maximum pairs of a trial, which are held in memory."""
ROWS_AT_ONCE = 64
ABSENT = -30.0
"""Logit of a class without a training row, below those of all other classes."""
MOST_ITERATIONS = 1_000


class FewLabels:
    """Trains a SequenceTask with the mean as pooling on few labelled rows."""

    def __init__(self, task: SequenceTask, rows: pa.Table, pairs: int, seed: int) -> None:
        """Draw the pairs of the rows, as `pairs_of`. Raises DataError if all rows have the same class."""
        self.task, self.rows = task, rows
        self.pairs = pairs_of(rows, pairs, seed)
        self.encoder_task = SimilarityTask.around(task.encoder, pooling="mean")
        """The module to train on `pairs`. It shares its encoder with the task."""
        self.encoder_task.learn(Similarity(loss="cosine"), 0.0, 1.0)

    @torch.no_grad()
    def fit_head(self, device: torch.device, autocast: torch.autocast) -> None:
        """Fit the head to the encoder's vectors of the labelled rows."""
        self.task.eval()
        vectors = np.concatenate(
            [
                self.vectors(self.rows.slice(start, ROWS_AT_ONCE), device, autocast)
                for start in range(0, self.rows.num_rows, ROWS_AT_ONCE)
            ]
        )
        head = self.task.classification_head
        weight, bias = linear_head(vectors, self.rows["label"].to_numpy().astype(np.int64), head.out_features)
        head.weight.copy_(weight)
        head.bias.copy_(bias)

    @torch.no_grad()
    def vectors(self, rows: pa.Table, device: torch.device, autocast: torch.autocast) -> np.ndarray:
        """Return the vectors of rows, float32 (R, W)."""
        batch = collate_labelled(rows.combine_chunks()).to(device)
        with autocast:
            return self.encoder_task.vectors(batch).float().cpu().numpy()


def pairs_of(rows: pa.Table, pairs: int, seed: int) -> pa.Table:
    """Return pairs of rows, with the label 1 for rows of the same class and 0 for others.

    Each row is drawn as the first of `pairs` pairs with another row of its class, if there is one, and of `pairs` pairs
    with a row of another class. Both rows' sequences stand in one row of the result, as in kind similarity. Raises
    DataError if all rows have the same class, or if there were more than MOST_PAIRS pairs.
    """
    labels, random = rows["label"].to_numpy(), numbered_generator(seed, PAIRING)
    if (labels == labels[0]).all():
        raise DataError(
            f"all {rows.num_rows:,} training rows have the same class, so no pair has two classes: give more rows"
        )
    if 2 * pairs * len(labels) > MOST_PAIRS:
        raise DataError(
            f"recipe.contrastive_pairs ({pairs}) would make {2 * pairs * len(labels):,} pairs of {len(labels):,} rows, "
            f"more than {MOST_PAIRS:,}: it is for few labels; take fewer with recipe.rows_per_class"
        )
    of_class = {
        label: (np.flatnonzero(labels == label), np.flatnonzero(labels != label)) for label in np.unique(labels)
    }
    first, second, same = [], [], []
    for row, label in enumerate(labels):
        equal, unlike = of_class[label]
        for others, wanted in ((equal[equal != row], 1.0), (unlike, 0.0)):
            drawn = random.choice(others, pairs) if len(others) else others
            first += [row] * len(drawn)
            second += drawn.tolist()
            same += [wanted] * len(drawn)
    return _joined(rows, np.array(first), np.array(second), np.array(same, np.float32))


def _joined(rows: pa.Table, first: np.ndarray, second: np.ndarray, labels: np.ndarray) -> pa.Table:
    """Return a table with the sequences of two rows end to end, schema ENCODED with the lengths of its sequences."""
    ids = rows["ids"].combine_chunks()
    lengths = ids.value_lengths().to_numpy()
    both = ids.take(pa.array(np.stack((first, second), axis=1).ravel()))
    bounds = both.offsets.take(pa.array(np.arange(0, len(both) + 1, 2)))
    columns = {
        "ids": pa.ListArray.from_arrays(bounds, both.values),
        "first_length": pa.array(lengths[first].astype(np.int32)),
        "label": pa.array(labels),
        "labels": pa.nulls(len(labels), rows.schema.field("labels").type),
        "row": pa.array(np.arange(len(labels))),
    }
    joined = pa.table(columns, schema=rows.schema)
    return joined.append_column(SECOND_LENGTH, pa.array(lengths[second].astype(np.int32)))


def linear_head(vectors: np.ndarray, classes: np.ndarray, count: int) -> tuple[Tensor, Tensor]:
    """Return weight, float32 (C, W), and bias (C,) of a logistic regression on vectors (R, W) with classes (R,).

    The regression has scikit-learn's default regularisation, as published. A class of the `count` classes without a row
    gets the bias ABSENT.
    """
    fitted = LogisticRegression(max_iter=MOST_ITERATIONS).fit(vectors, classes)
    weight, bias = torch.zeros(count, vectors.shape[1]), torch.full((count,), ABSENT)
    coefficients, intercepts = fitted.coef_, fitted.intercept_
    if len(fitted.classes_) == 2:  # one row of coefficients, for the second class against the first
        coefficients = np.concatenate((-coefficients, coefficients)) / 2
        intercepts = np.concatenate((-intercepts, intercepts)) / 2
    present = torch.from_numpy(fitted.classes_)
    weight[present] = torch.from_numpy(coefficients).float()
    bias[present] = torch.from_numpy(intercepts).float()
    return weight, bias
