"""Cut long texts into chunks that fit a model's maximum length: at sentence ends if possible, else between words."""

from collections.abc import Callable, Sequence

from tokenizers import Encoding, Tokenizer

from pipeline.errors import ConfigError

ENDS, CLOSING = ".!?…。！？", "\"')]”’»」"
"""Characters that end a sentence, and closing characters that may come after the end."""
LEAST_ROOM = 8
"""Minimum tokens of text in a chunk."""
TEXTS_AT_ONCE = 256
Span = tuple[int, int]
"""Start and end (exclusive) of a chunk in its text, in characters."""


def room_of(tokenizer: Tokenizer, maximum_length: int, prompt: str) -> int:
    """Return the maximum tokens of a text, after the special tokens and the prompt are subtracted.

    Raises ConfigError if fewer than LEAST_ROOM tokens are left.
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
    """Return the spans of each text's chunks. A chunk has at most `room` tokens; a short text is one chunk.

    Together, the chunks contain the whole text except white space. `tokenizer` must not truncate. The tokens of a chunk
    are counted with `prompt` before the chunk, because the model reads both together.
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
        # A chunk alone may be split into more tokens than the same characters within the text.
        sizes = counted([piece for _, piece in pieces])
        for row in {row for (row, _), size in zip(pieces, sizes) if size > room}:
            spans[row] = _cut(texts[row], cut[row], room, counted)
    return [spans[row] for row in range(len(texts))]


def _cut(
    text: str, encoding: Encoding, room: int, counted: Callable[[Sequence[str]], list[int]] | None = None
) -> list[Span]:
    """Return the spans of a long text's chunks.

    `counted` returns the number of tokens of each piece as a separate text. If `counted` is given, a chunk with more
    than `room` tokens as a separate text is made shorter.
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
    """Return the index of the token after a chunk, and the chunk's span.

    The chunk begins with the token `first` and ends before the token `after` or earlier. Its span has no white space at
    the ends. The span begins at `least` or later, because one character may have several tokens.
    """
    after = _boundary(text, offsets, first, after) if after < len(offsets) else len(offsets)
    start, end = max(offsets[first][0], least), offsets[after - 1][1]
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return after, (start, start + len(piece.strip()))


def _boundary(text: str, offsets: Sequence[Span], first: int, after: int) -> int:
    """Return the index of the token that begins the next chunk: `after`, or an earlier token.

    It is the last token that begins a sentence in the second half of the chunk, else the last token that begins a word.
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
    """Return whether white space is between a token that ends at `end` and the next token, which starts at `start`."""
    return end < start or text[start : start + 1].isspace()


def _begins_sentence(text: str, end: int, start: int) -> bool:
    """Return whether a token that starts at `start` begins a line or a sentence. The token before it ends at `end`."""
    if not _begins_word(text, end, start):
        return text[end - 1 : end] in ("。", "！", "？")
    return "\n" in text[end : start + 1] or text[max(0, end - 8) : end].rstrip(CLOSING)[-1:] in tuple(ENDS)
