"""Training the word embeddings that are seen is training all of them."""

import torch

from pipeline.config.model import Model
from pipeline.finetune.seen_words import SeenWords
from pipeline.model.embeddings import Embeddings


def test_training_used_embeddings_equals_training_all() -> None:
    torch.manual_seed(0)
    embeddings = Embeddings(Model(layers=1, width=8, heads=2, feed_forward=16, maximum_positions=8), 12)
    whole = torch.nn.Embedding.from_pretrained(embeddings.words.weight.detach().clone(), freeze=False)
    begun, kept = embeddings.words.weight.detach().clone(), embeddings.words
    seen = SeenWords(embeddings.words, torch.tensor([3, 7, 7, 0]))
    assert len(seen.weight) == 4, "three words, and the row that tells the decay"
    ours, theirs = (
        torch.optim.AdamW([weight], lr=0.1, weight_decay=0.5, fused=True) for weight in (seen.weight, whole.weight)
    )
    for ids in ([3, 7], [0, 3], [7, 7], [0, 0]):
        with seen.train_in(embeddings):  # as in epochs, between which the whole table is looked at
            for words, optimizer in ((embeddings.words, ours), (whole, theirs)):
                words(torch.tensor(ids)).pow(3).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert embeddings.words is kept
        torch.testing.assert_close(embeddings.words.weight, whole.weight)
    unseen = [row for row in range(12) if row not in (0, 3, 7)]
    torch.testing.assert_close(whole.weight[unseen], begun[unseen] * 0.95**4)
