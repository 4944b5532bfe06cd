"""The files by which sentence-transformers, and servers of embeddings, know how an encoder's states become a vector.

modules.json                 the encoder, the mean of its last hidden states, length 1
1_Pooling/config.json        the mean, in the form that sentence-transformers wrote before 5.4, which all read
sentence_bert_config.json    tokens at which texts are cut
"""

import json

MODULES = (("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Normalize", "Normalize"))
"""Name, folder, class; the last has no files."""
POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def sentence_files(width: int, maximum_length: int) -> dict[str, str]:
    """Return name -> content of the files with which `encode` of sentence-transformers equals `embed` of pipeline.api.

    `maximum_length`: tokens of the longest sequences that the model was trained on; longer texts are cut there.
    """
    modules = [
        {"idx": index, "name": name, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (name, path, kind) in enumerate(MODULES)
    ]
    pooling = {f"pooling_mode_{name}": name == "mean_tokens" for name in POOLINGS}
    contents = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": width} | pooling | {"include_prompt": True},
        "sentence_bert_config.json": {"max_seq_length": maximum_length, "do_lower_case": False},
    }
    return {name: json.dumps(content, indent=2) + "\n" for name, content in contents.items()}
