"""Linear-chain conditional random field: probabilities of whole tag sequences (Lafferty et al. 2001).

The score of a sequence is the sum of the scores of its tags at each word (the emissions), of each tag after the
previous tag, and of the first and the last tag. Sequences that the scheme of the tags forbids have the probability 0.

Shapes: N chains of at most L words, K tags. All scores are float32.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

FORBIDDEN = -1e4
"""Score of a forbidden step in training: its exponential is 0, and unlike minus infinity it gives no NaN."""
CHAINS_AT_ONCE = 1_024  # sentences of a batch


@dataclass(frozen=True, kw_only=True)
class Chains:
    """Sequences of words to tag."""

    emissions: Tensor
    """Scores of the tags of each word, (N, L, K); any finite values after a chain's last word."""
    lengths_N: Tensor
    """Number of words of each chain, int64."""
    opens_N: Tensor
    """Whether a chain's first word is the first of its sentence; if not, its first tag has no score of its own."""
    closes_N: Tensor
    """Whether a chain's last word is the last of its sentence; if not, its last tag has no score of its own."""


class LinearChain(nn.Module):
    """Scores of first tags, of tags after each other, and of last tags; all are 0 at first."""

    def __init__(self, start: np.ndarray, following: np.ndarray, end: np.ndarray) -> None:
        """Make a chain of K tags.

        Bool arrays say with which tags a sentence may start (K,), which tag (column) may follow which tag (row) (K, K),
        and with which tags a sentence may end (K,).
        """
        super().__init__()
        self.start = nn.Parameter(torch.zeros(start.shape))
        self.following = nn.Parameter(torch.zeros(following.shape))
        self.end = nn.Parameter(torch.zeros(end.shape))
        for name, allowed in (("start", start), ("following", following), ("end", end)):
            self.register_buffer(f"{name}_forbidden", torch.from_numpy(~allowed), persistent=False)

    def scores(self, forbidden: float = FORBIDDEN) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores of first tags (K,), of a tag (column) after a tag (row) (K, K), and of last tags (K,).

        Steps that the scheme forbids have the score `forbidden`.
        """
        return (
            self.start.float().masked_fill(self.start_forbidden, forbidden),
            self.following.float().masked_fill(self.following_forbidden, forbidden),
            self.end.float().masked_fill(self.end_forbidden, forbidden),
        )

    def losses(self, chains: Chains, tags_NL: Tensor) -> Tensor:
        """Return the negative log-likelihood of each chain's tags (N,); 0 for a chain without words.

        `tags_NL` is int64, with any tags after a chain's last word.
        """
        losses_N = self.log_partition(chains) - self.path_scores(chains, tags_NL)
        return torch.where(chains.lengths_N > 0, losses_N, 0.0)

    def path_scores(self, chains: Chains, tags_NL: Tensor) -> Tensor:
        """Return the score of each chain's tags (N,); `tags_NL` as in `losses`."""
        start, following, end = self.scores()
        inside_NL = torch.arange(tags_NL.shape[1], device=tags_NL.device) < chains.lengths_N[:, None]
        at_words = chains.emissions.float().gather(2, tags_NL[:, :, None])[:, :, 0] * inside_NL
        between = following[tags_NL[:, :-1], tags_NL[:, 1:]] * inside_NL[:, 1:]
        last_N = tags_NL.gather(1, (chains.lengths_N - 1).clamp(min=0)[:, None])[:, 0]
        ends_N = start[tags_NL[:, 0]] * chains.opens_N + end[last_N] * chains.closes_N
        return at_words.sum(1) + between.sum(1) + ends_N

    def log_partition(self, chains: Chains) -> Tensor:
        """Return the logarithm of the summed exponentials of the scores of all tag sequences (N,).

        The forward algorithm computes it, word by word.
        """
        start, following, end = self.scores()
        first, *further = chains.emissions.float().unbind(1)
        alpha = first + start * chains.opens_N[:, None]
        for place, word in enumerate(further, 1):
            longer = (alpha[:, :, None] + following).logsumexp(1) + word
            alpha = torch.where((place < chains.lengths_N)[:, None], longer, alpha)
        return (alpha + end * chains.closes_N[:, None]).logsumexp(1)

    @torch.no_grad()
    def best_tags(self, emissions: Tensor, lengths_N: Tensor) -> Tensor:
        """Return the tags with the highest score of each chain of a whole sentence, int64 (N, L), by Viterbi.

        `emissions` (N, L, K) may hold minus infinity. If they leave a path without a forbidden step, the best path has
        none. After a chain's last word, its last tag is repeated.
        """
        start, following, end = self.scores(-torch.inf)
        first, *further = emissions.float().unbind(1)
        same, best, pointers = torch.arange(len(end), device=end.device), first + start, []
        for place, word in enumerate(further, 1):
            inside = (place < lengths_N)[:, None]
            longer, before = (best[:, :, None] + following).max(1)
            best = torch.where(inside, longer + word, best)
            pointers.append(torch.where(inside, before, same))
        tags = [(best + end).argmax(1)]
        for before in reversed(pointers):
            tags.append(before.gather(1, tags[-1][:, None])[:, 0])
        return torch.stack(tags[::-1], 1)

    @torch.no_grad()
    def tag_shares(self, emissions: Tensor, lengths_N: Tensor) -> Tensor:
        """Return the probability of each tag at each word of whole sentences, float32 (N, L, K).

        It is the summed probability of all tag sequences that have the tag at the word, computed by the
        forward-backward algorithm. `emissions` (N, L, K) may hold minus infinity, but not for all tags of a word. The
        values after a chain's last word have no meaning.
        """
        start, following, end = self.scores()
        words = emissions.float().unbind(1)
        # Each word's sums are normalised, because float32 is too coarse for the sums of long sentences.
        forward = [(words[0] + start).log_softmax(1)]
        for word in words[1:]:
            forward.append(((forward[-1][:, :, None] + following).logsumexp(1) + word).log_softmax(1))
        backward = [end.expand_as(words[0])]
        for place in range(len(words) - 1, 0, -1):
            later = (following + (words[place] + backward[-1])[:, None, :]).logsumexp(2).log_softmax(1)
            backward.append(torch.where((place < lengths_N)[:, None], later, end))
        return (torch.stack(forward, 1) + torch.stack(backward[::-1], 1)).softmax(2)

    def best_paths(self, sentences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the best tags of each sentence, int64 (words,), from its emissions, float32 (words, K).

        They are computed on the CPU.
        """
        return _in_batches(sentences, copy.deepcopy(self).cpu().best_tags, np.zeros(0, np.int64))

    def probabilities(self, sentences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return `tag_shares` of each sentence, float32 (words, K), from its emissions, float32 (words, K).

        They are computed on the CPU.
        """
        return _in_batches(sentences, copy.deepcopy(self).cpu().tag_shares, np.zeros((0, len(self.end)), np.float32))


def _in_batches(
    sentences: Sequence[np.ndarray], compute: Callable[[Tensor, Tensor], Tensor], empty: np.ndarray
) -> list[np.ndarray]:
    """Return `compute` of each sentence; `empty` for a sentence without words.

    `compute` maps emissions (N, L, K) and lengths (N,) of a batch to values (N, L, ...). Sentences of similar length
    are computed together, so that little padding is computed.
    """
    results = [empty for _ in sentences]
    order = np.argsort([len(sentence) for sentence in sentences], kind="stable")
    for start in range(0, len(order), CHAINS_AT_ONCE):
        chosen = [index for index in order[start : start + CHAINS_AT_ONCE] if len(sentences[index])]
        if not chosen:
            continue
        lengths = [len(sentences[index]) for index in chosen]
        emissions = pad_sequence([torch.from_numpy(sentences[index]) for index in chosen], batch_first=True)
        computed = compute(emissions, torch.tensor(lengths)).numpy()
        for index, values, length in zip(chosen, computed, lengths, strict=True):
            results[index] = values[:length]
    return results
