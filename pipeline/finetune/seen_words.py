"""Train only the word embeddings that a training set uses, with the same result as training all of them."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.model.embeddings import Embeddings


class SeenWords(nn.Module):
    """The rows of an embedding table that training uses, as a module that is trained in place of the table.

    The gradient of the other rows is 0, so under AdamW only weight decay changes them, and all by the same factor. An
    extra row of ones, which no id uses, records this factor. So the result is the same as after training the whole
    table, but only the used rows cost time. Fine-tuning uses some thousands of 30,522 rows.
    """

    def __init__(self, words: nn.Embedding, ids: Tensor) -> None:
        """Take `words` (V, width) and the used `ids`, in any order, with or without repetition."""
        super().__init__()
        seen = torch.zeros(words.num_embeddings, dtype=torch.bool, device=words.weight.device)
        seen[ids.to(seen.device)] = True
        self.seen, self.places = seen, seen.cumsum(0) - 1
        """Which ids are used, bool (V,), and the row of each used id in `weight`, int64 (V,)."""
        table = words.weight.detach()
        self.start = table[~seen]
        """Initial values of the unused rows."""
        self.weight = nn.Parameter(torch.cat([table[seen], torch.ones_like(table[:1])]))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings (..., width) of `ids` (...), which must all be used ids."""
        return F.embedding(self.places[ids], self.weight)

    @torch.no_grad()
    def write(self, words: nn.Embedding) -> None:
        """Write the used rows to the whole table `words`, and all other rows as weight decay has changed them."""
        words.weight[self.seen] = self.weight[:-1]
        words.weight[~self.seen] = self.start * self.weight[-1]

    @contextmanager
    def train_in(self, embeddings: Embeddings) -> Generator[None]:
        """Replace the table by its used rows inside the context; afterwards, restore it with the trained values."""
        words = embeddings.words
        embeddings.words = self
        try:
            yield
        finally:
            embeddings.words = words
            self.write(words)
