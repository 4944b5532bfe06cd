"""Kinds of task, those that a user names, and the metrics of those whose labels are numbers."""

from typing import Literal

NamedKind = Literal["classification", "regression", "multilabel", "ranking", "similarity", "tags", "spans", "choices"]
"""Kinds that a user names. Predict per text or pair: one class, a number, or several labels. Or score the candidates of
a query, or predict the similarity of two texts from their vectors. Or predict a tag per word, a span of a context that
answers a question, or which of several texts continues a context.
"""
OwnKind = Literal["auto", NamedKind]
"""Values of the setting kind."""
Kind = Literal[NamedKind, "matching", "relations"]
"""All kinds. Predict also, from the vectors of texts: the text that matches a text, or the class of a pair; in the
setting kind, these two are kind similarity, and similarity.loss tells them apart.
"""
VALUE_METRICS: dict[Kind, tuple[str, ...]] = {
    "regression": ("pearson", "spearman", "mean_absolute_error"),
    "similarity": ("spearman", "pearson"),
    "ranking": ("map", "mrr", "ndcg@10"),
}
"""Kind of task whose labels are numbers on a scale -> its metrics; the first one selects settings."""
