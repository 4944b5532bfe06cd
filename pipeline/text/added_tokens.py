"""Tokens added to a tokenizer, such as user names and markers of entities: they match in a text before it is split."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """An added token, with the settings that `tokenizers` gives it."""

    content: str
    single_word: bool = False
    """Whether it matches only between characters that are not part of a word."""
    lstrip: bool = False
    """Whether it includes the white space before it."""
    rstrip: bool = False
    """Whether it includes the white space after it."""
    normalized: bool = True
    """Whether it is compared with the normalised text, for example in lower case."""
    special: bool = False
    """Whether the file marks it as special. In a corpus it is then text, as with encode_special_tokens of tokenizers;
    in fine-tuning and for vectors it matches like the others.
    """


def added_tokens_of(whole: dict[str, Any]) -> tuple[AddedToken, ...]:
    """Return the added tokens that a tokenizer.json lists, in its order."""
    return tuple(
        AddedToken(**{name: token[name] for name in AddedToken.__dataclass_fields__}) for token in whole["added_tokens"]
    )


def as_listed(token: AddedToken, id: int) -> dict[str, Any]:
    """Return an added token as a tokenizer.json lists it."""
    return {"id": id} | asdict(token)
