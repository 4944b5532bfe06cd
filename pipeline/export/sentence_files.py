"""Files that tell sentence-transformers and embedding servers how to turn an encoder's hidden states into a vector.

modules.json                 the steps: encoder, pooling of its last hidden states, projection, scaling to length 1
1_Pooling/config.json        the pooling, in the format before sentence-transformers 5.4; all versions read this format
1_AttentionPooling/          weights and config.json of a learned pooling (no 1_Pooling then); only bertstream reads it
2_Dense/                     the projection's weights and config.json, if it has one; a checkpoint has this folder
sentence_bert_config.json    the maximum tokens of a text; longer texts are truncated
config_sentence_transformers.json    prompts for queries and documents, if the model was trained with prompts
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pipeline.saved.pooling import ATTENTION, DENSE, PROMPTS, Pooling

THEIRS, OURS = "sentence_transformers.models.", "bertstream."
"""Packages of the steps' classes. sentence-transformers refuses a model with a class of ours, because it cannot import
the class. Without the step in modules.json, it would compute other vectors.
"""
POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
"""Poolings of the format; each is a flag in the file."""


def sentence_files(
    width: int,
    maximum_length: int,
    pooling: Pooling = "mean",
    *,
    projected: bool = False,
    prompts: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return file name -> content. With these files, `encode` of sentence-transformers equals `embed` of pipeline.api.

    `width` is the width of the hidden states. `maximum_length` is the maximum tokens of a text, usually the length of
    the longest training sequences. `projected`: the folder has a projection in DENSE. `prompts`: {name: text before
    texts}, used by `encode` and `embed` only if their caller names one. sentence-transformers cannot load a folder with
    the pooling attention.
    """
    pool = (ATTENTION, f"{OURS}AttentionPooling") if pooling == "attention" else ("1_Pooling", f"{THEIRS}Pooling")
    steps = [("", f"{THEIRS}Transformer"), pool, *[(DENSE, f"{THEIRS}Dense")] * projected]
    steps.append((f"{len(steps)}_Normalize", f"{THEIRS}Normalize"))
    contents: dict[str, Any] = {
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": kind} for index, (path, kind) in enumerate(steps)
        ],
        "sentence_bert_config.json": {"max_seq_length": maximum_length, "do_lower_case": False},
    }
    if pooling != "attention":
        chosen = {"mean": "mean_tokens", "cls": "cls_token"}[pooling]
        modes = {f"pooling_mode_{name}": name == chosen for name in POOLINGS}
        contents["1_Pooling/config.json"] = {"word_embedding_dimension": width} | modes | {"include_prompt": True}
    if prompts:
        contents[PROMPTS] = {"prompts": dict(prompts), "default_prompt_name": None, "similarity_fn_name": "cosine"}
    return {name: json.dumps(content, indent=2) + "\n" for name, content in contents.items()}
