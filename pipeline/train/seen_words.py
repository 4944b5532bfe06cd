"""Train only the word embeddings that a training set uses, with the result of training all."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.model.embeddings import Embeddings


class SeenWords(nn.Module):
    """The rows of an embedding table that training reads.

    Under AdamW the other rows have no gradient, so only weight decay changes them; an extra row of ones, which nothing
    reads, tracks by how much. The result equals training the whole table at the cost of the used rows: fine-tuning uses
    some thousands of 30,522.
    """

    def __init__(self, words: nn.Embedding, ids: Tensor) -> None:
        """Take `words` (V, width) and the used `ids`, in any order, with or without repetition."""
        super().__init__()
        seen = torch.zeros(words.num_embeddings, dtype=torch.bool, device=words.weight.device)
        seen[ids.to(seen.device)] = True
        self.seen, self.places = seen, seen.cumsum(0) - 1
        table = words.weight.detach()
        self.start = table[~seen]
        self.weight = nn.Parameter(torch.cat([table[seen], torch.ones_like(table[:1])]))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings of ids, all of them used ones; width is the last dimension."""
        return F.embedding(self.places[ids], self.weight)

    @torch.no_grad()
    def write(self, words: nn.Embedding) -> None:
        """Write the trained rows, and the decay of all others, back to the whole table."""
        words.weight[self.seen] = self.weight[:-1]
        words.weight[~self.seen] = self.start * self.weight[-1]

    @contextmanager
    def train_in(self, embeddings: Embeddings) -> Generator[None]:
        """Replace the table by its used rows inside the context; restore the whole trained table after it."""
        words = embeddings.words
        embeddings.words = self
        try:
            yield
        finally:
            embeddings.words = words
            self.write(words)
