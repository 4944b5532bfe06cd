"""Write a vocabulary as the files that transformers reads: tokenizer.json, its config, and vocab.txt or merges."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.files import storage
from pipeline.text.added_token_files import ADDED
from pipeline.text.added_tokens import AddedToken, as_listed
from pipeline.text.splitting import CONTINUATION, SPECIALS, SPECIALS_OF_BYTES
from pipeline.text.template import ONE_SEPARATOR, TWO_SEPARATORS
from pipeline.text.vocabulary import Vocabulary


def save_vocabulary(vocabulary: Vocabulary, folder: Path, maximum_length: int, segments: int = 2) -> None:
    """Write the vocabulary as files that transformers' AutoTokenizer can read.

    The files are tokenizer.json and tokenizer_config.json; for WordPiece also vocab.txt; for byte-level BPE also
    vocab.json and merges.txt. `maximum_length` is the model's maximum sequence length in tokens; `segments` is the
    number of segments for which the model has embeddings. The tokenizer adds the special tokens of the vocabulary's
    template. Segment B gets segment id 1 if the model has two segments and the template has one separator between A and
    B, else 0.
    """
    whole = published_tokenizer(vocabulary, segments)
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": maximum_length}
    if vocabulary.kind == "wordpiece":
        config |= {
            # BertTokenizer makes its own template, which always has two segments.
            "tokenizer_class": "BertTokenizer" if segments > 1 else "PreTrainedTokenizerFast",
            "do_lower_case": vocabulary.lowercase,
            "strip_accents": vocabulary.strip_accents,
            "tokenize_chinese_chars": vocabulary.chinese_characters,
        }
    if _is_roberta(vocabulary, whole):
        config |= {
            "tokenizer_class": "RobertaTokenizer",
            "add_prefix_space": whole["pre_tokenizer"]["add_prefix_space"],
            "trim_offsets": True,
        }
    if segments < 2:
        config |= {"model_input_names": ["input_ids", "attention_mask"]}
    elif config["tokenizer_class"] == "PreTrainedTokenizerFast":
        # Without this setting, transformers 5 leaves out the segment ids.
        config |= {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    config |= {f"{special.strip('[]').lower()}_token": name for special, name in zip(SPECIALS, vocabulary.specials)}
    for name, content in _files_of_kind(vocabulary, whole["model"]).items():
        storage.write_bytes(str(folder / name), content.encode())
    storage.write_bytes(str(folder / "tokenizer.json"), json.dumps(whole, indent=2, ensure_ascii=False).encode())
    storage.write_json(str(folder / "tokenizer_config.json"), config)


def published_tokenizer(vocabulary: Vocabulary, segments: int = 2) -> dict[str, Any]:
    """Return the content of tokenizer.json.

    A tokenizer loaded from this file parses special tokens in a text, and adds special tokens to texts and pairs.
    """
    whole = json.loads(vocabulary.tokenizer_json())
    whole |= {"added_tokens": _added_tokens(vocabulary), "post_processor": _post_processor(vocabulary, whole, segments)}
    if vocabulary.kind == "wordpiece":
        whole["decoder"] = {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True}
    return whole


def _is_roberta(vocabulary: Vocabulary, whole: dict[str, Any]) -> bool:
    """Whether transformers' RobertaTokenizer, which reads only vocab.json and merges.txt, gives the same ids."""
    splitter = whole["pre_tokenizer"]
    return (
        vocabulary.specials[:5] == SPECIALS_OF_BYTES
        and vocabulary.template == TWO_SEPARATORS
        and vocabulary.kind == "byte-bpe"
        and whole["normalizer"] is None
        and splitter["type"] == "ByteLevel"
        and splitter.get("use_regex", True)
    )


def _files_of_kind(vocabulary: Vocabulary, model: dict[str, Any]) -> dict[str, str]:
    """Return {name: content} of the files that published vocabularies of this kind have besides tokenizer.json."""
    if vocabulary.kind == "wordpiece":
        files = {"vocab.txt": "".join(f"{token}\n" for token in model["vocab"])}
        only_added = {token: vocabulary.ids[token] for token in vocabulary.tokens[len(model["vocab"]) :]}
        return files | ({ADDED: json.dumps(only_added, ensure_ascii=False)} if only_added else {})
    if vocabulary.kind == "unigram":
        return {}
    # In files from before 2024, a merge is one string.
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    return {
        "vocab.json": json.dumps(vocabulary.ids, ensure_ascii=False),
        "merges.txt": "".join(f"{line}\n" for line in ("#version: 0.2", *merges)),
    }


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return the special and the added tokens as a tokenizer.json lists them, in the order of their ids.

    In byte-level BPE, the mask token includes the space before it, as in RoBERTa, because the word that it replaces
    includes that space.
    """
    tokens = {name: AddedToken(content=name, normalized=False, special=True) for name in vocabulary.specials}
    if vocabulary.keeps_spaces:
        mask = vocabulary.specials[4]
        tokens[mask] = replace(tokens[mask], lstrip=True)
    tokens |= {token.content: token for token in vocabulary.added}
    return [as_listed(tokens[name], vocabulary.ids[name]) for name in sorted(tokens, key=vocabulary.ids.__getitem__)]


def _post_processor(vocabulary: Vocabulary, whole: dict[str, Any], segments: int) -> dict[str, Any]:
    """Return the vocabulary's template as a tokenizer.json states it.

    Segment B has segment id 1 if the template has one separator and the model has two segments, else 0.
    """
    first, separator = vocabulary.specials[2:4]
    if vocabulary.template == TWO_SEPARATORS and whole["pre_tokenizer"]["type"] == "ByteLevel":
        return {
            "type": "RobertaProcessing",
            "sep": [separator, vocabulary.sep_id],
            "cls": [first, vocabulary.cls_id],
            "trim_offsets": True,
            "add_prefix_space": whole["pre_tokenizer"]["add_prefix_space"],
        }
    segment = 1 if vocabulary.template == ONE_SEPARATOR and segments > 1 else 0
    before, text, after = _special(first), _text("A"), _special(separator)
    between = [after] * vocabulary.template.pair_separators
    return {
        "type": "TemplateProcessing",
        "single": [before, text, after],
        "pair": [before, text, *between, _text("B", segment), _special(separator, segment)],
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary.ids[name]], "tokens": [name]} for name in sorted({first, separator})
        },
    }


def _special(name: str, segment: int = 0) -> dict[str, Any]:
    """Return a special token as a template states it."""
    return {"SpecialToken": {"id": name, "type_id": segment}}


def _text(name: str, segment: int = 0) -> dict[str, Any]:
    """Return the place of a text, A or B, as a template states it."""
    return {"Sequence": {"id": name, "type_id": segment}}
