"""Cut long texts into chunks that a model reads whole, at ends of sentences if possible, else between words."""

from collections.abc import Callable, Sequence

from tokenizers import Encoding, Tokenizer

from pipeline.errors import ConfigError

ENDS, CLOSING = ".!?…。！？", "\"')]”’»」"
"""Characters that end a sentence, and characters that may follow them."""
LEAST_ROOM = 8
"""Minimum tokens of text in a chunk."""
TEXTS_AT_ONCE = 256
Span = tuple[int, int]
"""Start and end (exclusive) of a chunk in its text, in characters."""


def room_of(tokenizer: Tokenizer, maximum_length: int, prompt: str) -> int:
    """Return the tokens that a text may have besides the special tokens and the prompt.

    Raises ConfigError if fewer than LEAST_ROOM are left.
    """
    before = len(tokenizer.encode(prompt, add_special_tokens=False).ids) if prompt else 0
    room = maximum_length - tokenizer.num_special_tokens_to_add(False) - before
    if room < LEAST_ROOM:
        raise ConfigError(
            f"prompt ({prompt!r}) has {before} tokens, which leaves {room} of the model's {maximum_length} tokens for "
            f"text: give a prompt that leaves at least {LEAST_ROOM}"
        )
    return room


def chunk_spans(texts: Sequence[str], tokenizer: Tokenizer, room: int, prompt: str = "") -> list[list[Span]]:
    """Return the spans of each text's chunks, which have at most `room` tokens; a short text is one chunk.

    The chunks of a text together hold all of it but white space. `tokenizer` must not truncate. A chunk is counted
    after `prompt`, as the model reads it.
    """
    before = len(tokenizer.encode(prompt, add_special_tokens=False).ids)

    def counted(pieces: Sequence[str]) -> list[int]:
        encodings = tokenizer.encode_batch([prompt + piece for piece in pieces], add_special_tokens=False)
        return [len(encoding.ids) - before for encoding in encodings]

    spans: dict[int, list[Span]] = {row: [(0, len(text))] for row, text in enumerate(texts)}
    # Every token has at least one byte of the text.
    long = [row for row, text in enumerate(texts) if len(text.encode("utf-8", "surrogatepass")) > room]
    for first in range(0, len(long), TEXTS_AT_ONCE):
        rows = long[first : first + TEXTS_AT_ONCE]
        encodings = tokenizer.encode_batch([texts[row] for row in rows], add_special_tokens=False)
        cut = {row: encoding for row, encoding in zip(rows, encodings, strict=True) if len(encoding.ids) > room}
        spans |= {row: _cut(texts[row], encoding, room) for row, encoding in cut.items()}
        pieces = [(row, texts[row][start:end]) for row in cut for start, end in spans[row]]
        # Without the characters before it, a chunk may have other and more tokens than in its text.
        sizes = counted([piece for _, piece in pieces])
        for row in {row for (row, _), size in zip(pieces, sizes) if size > room}:
            spans[row] = _cut(texts[row], cut[row], room, counted)
    return [spans[row] for row in range(len(texts))]


def _cut(
    text: str, encoding: Encoding, room: int, counted: Callable[[Sequence[str]], list[int]] | None = None
) -> list[Span]:
    """Return the spans of a long text's chunks; `counted` returns the tokens of pieces of text by themselves.

    With `counted`, a chunk with more than `room` tokens by itself is made shorter.
    """
    offsets, spans, first = encoding.offsets, [(0, 0)], 0
    while first < len(offsets):
        after, (start, end) = _chunk(text, offsets, first, first + room, spans[-1][1])
        while counted and after > first + 1 and (excess := counted([text[start:end]])[0] - room) > 0:
            after, (start, end) = _chunk(text, offsets, first, max(first + 1, after - excess), spans[-1][1])
        if start < end:
            spans.append((start, end))
        first = after
    return spans[1:] or spans


def _chunk(text: str, offsets: Sequence[Span], first: int, after: int, least: int) -> tuple[int, Span]:
    """Return the token after a chunk of the tokens from `first` to at most `after`, and the chunk's span.

    The span has no white space at its ends and begins at `least` or later, because a character may have several tokens.
    """
    after = _boundary(text, offsets, first, after) if after < len(offsets) else len(offsets)
    start, end = max(offsets[first][0], least), offsets[after - 1][1]
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return after, (start, start + len(piece.strip()))


def _boundary(text: str, offsets: Sequence[Span], first: int, after: int) -> int:
    """Return the best token to begin the next chunk with: `after`, or an earlier one.

    The best is the last one that begins a sentence in the second half of the chunk, else the last that begins a word.
    """
    candidates = range(after, first, -1)
    middle = first + (after - first) // 2
    for token in candidates:
        if token <= middle:
            break
        if _begins_sentence(text, offsets[token - 1][1], offsets[token][0]):
            return token
    return next((token for token in candidates if _begins_word(text, *_gap(offsets, token))), after)


def _gap(offsets: Sequence[Span], token: int) -> Span:
    """Return the end of the token before `token`, and the start of `token`."""
    return offsets[token - 1][1], offsets[token][0]


def _begins_word(text: str, end: int, start: int) -> bool:
    """Return whether white space separates a token that starts at `start` from the one before, which ends at `end`."""
    return end < start or text[start : start + 1].isspace()


def _begins_sentence(text: str, end: int, start: int) -> bool:
    """Return whether a token that starts at `start` begins a line or a sentence; `end`: end of the token before."""
    if not _begins_word(text, end, start):
        return text[end - 1 : end] in ("。", "！", "？")
    return "\n" in text[end : start + 1] or text[max(0, end - 8) : end].rstrip(CLOSING)[-1:] in tuple(ENDS)
