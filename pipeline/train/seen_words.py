"""Word embeddings of the words that a training sees, trained in the place of all."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.model.embeddings import Embeddings


class SeenWords(nn.Module):
    """The rows of a table of word embeddings that training reads. Under AdamW the others have no gradient, so all that happens to them is weight decay: one more row,
    of ones, which nothing reads, tells by how much. The result is that of training the whole table, for the work of the rows seen: a fine-tuning sees some thousands of 30,522.
    """

    def __init__(self, words: nn.Embedding, ids: Tensor) -> None:
        """`words` (V, width); `ids` are those that are seen, in any order, repeated or not."""
        super().__init__()
        seen = torch.zeros(words.num_embeddings, dtype=torch.bool, device=words.weight.device)
        seen[ids.to(seen.device)] = True
        self.seen, self.places = seen, seen.cumsum(0) - 1
        table = words.weight.detach()
        self.start = table[~seen]
        self.weight = nn.Parameter(torch.cat([table[seen], torch.ones_like(table[:1])]))

    def forward(self, ids: Tensor) -> Tensor:
        """Ids, all of them seen -> embeddings, width last."""
        return F.embedding(self.places[ids], self.weight)

    @torch.no_grad()
    def write(self, words: nn.Embedding) -> None:
        """Bring the whole table to where training is."""
        words.weight[self.seen] = self.weight[:-1]
        words.weight[~self.seen] = self.start * self.weight[-1]

    @contextmanager
    def train_in(self, embeddings: Embeddings) -> Iterator[None]:
        """Within, the seen words stand in the place of all; after it the whole table is there again, as trained."""
        words = embeddings.words
        embeddings.words = self
        try:
            yield
        finally:
            embeddings.words = words
            self.write(words)
