"""Write a vocabulary as the files that transformers reads: tokenizer.json, its config, and vocab.txt or merges."""

import json
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing

from pipeline import storage
from pipeline.text.splitting import DECODERS, SPECIALS
from pipeline.text.vocabulary import Vocabulary


def save_vocabulary(vocabulary: Vocabulary, folder: Path, maximum_length: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and the kind's own files, readable by transformers' AutoTokenizer.

    `maximum_length` is the longest sequence of the model in tokens. The tokenizer builds [CLS] A [SEP] B [SEP] with
    segment ids.
    """
    whole = published_tokenizer(vocabulary)
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": maximum_length}
    if vocabulary.kind == "wordpiece":
        config |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": vocabulary.lowercase,
            "strip_accents": vocabulary.strip_accents,
            "tokenize_chinese_chars": vocabulary.chinese_characters,
        }
    config |= {f"{special.strip('[]').lower()}_token": name for special, name in zip(SPECIALS, vocabulary.specials)}
    for name, content in _files_of_kind(vocabulary, whole["model"]).items():
        storage.write_bytes(str(folder / name), content.encode())
    storage.write_bytes(str(folder / "tokenizer.json"), json.dumps(whole, indent=2, ensure_ascii=False).encode())
    storage.write_json(str(folder / "tokenizer_config.json"), config)


def published_tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of tokenizer.json; special tokens in a text are parsed, and are added to texts and pairs."""
    whole = json.loads(vocabulary.model or vocabulary.tokenizer().to_str())
    whole |= {"added_tokens": _added_tokens(vocabulary), "post_processor": _pair_template(vocabulary)}
    if vocabulary.kind == "wordpiece":
        whole["decoder"] = json.loads(DECODERS["wordpiece"].__getstate__())
    return whole


def _files_of_kind(vocabulary: Vocabulary, model: dict[str, Any]) -> dict[str, str]:
    """Return {name: content} of the files that published vocabularies of this kind have besides tokenizer.json."""
    if vocabulary.kind == "wordpiece":
        return {"vocab.txt": "".join(f"{token}\n" for token in vocabulary.tokens)}
    if vocabulary.kind == "unigram":
        return {}
    merges = (
        merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]
    )  # strings in files from before 2024
    return {
        "vocab.json": json.dumps(vocabulary.ids, ensure_ascii=False),
        "merges.txt": "".join(f"{line}\n" for line in ("#version: 0.2", *merges)),
    }


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return the special tokens as marked in a tokenizer.json, by id."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [
        {"id": vocabulary.ids[name], "content": name} | plain
        for name in sorted(vocabulary.specials, key=vocabulary.ids.__getitem__)
    ]


def _pair_template(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the template [CLS] A [SEP] B [SEP], with segments 0 and 1, as in a tokenizer.json."""
    first, separator = vocabulary.specials[2:4]
    template = TemplateProcessing(
        single=[first, "$A", separator],
        pair=[first, "$A", separator, "$B:1", f"{separator}:1"],
        special_tokens=[(first, vocabulary.cls_id), (separator, vocabulary.sep_id)],
    )
    return json.loads(template.__getstate__())
