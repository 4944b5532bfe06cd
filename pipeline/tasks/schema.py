"""The pyarrow schemas of a task's rows: TEXTS as they are read, and ENCODED as ids."""

import pyarrow as pa

from pipeline.text.schema import EXAMPLE

TEXTS = pa.schema(
    [
        # GLUE: the row's id in the file; if the file has no ids, the row's number, from 0. Own files: the number of the
        # row's first line, from 1; in Parquet and JSON lists, the row's number, from 1
        pa.field("id", pa.string(), nullable=False),
        pa.field("first", pa.string(), nullable=False),  # segment A
        pa.field("second", pa.string()),  # segment B; null for tasks on single texts
        # as written in the file; for a multilabel task a JSON list of texts; null if the split has no labels
        pa.field("label", pa.string()),
    ]
)
MATCHES = TEXTS.append(pa.field("negatives", pa.list_(pa.string()), nullable=False))
"""TEXTS of kind matching, whose second text matches the first: with texts that do not match it, and without labels."""

CHOICES = TEXTS.append(pa.field("choices", pa.list_(pa.string()), nullable=False))
"""TEXTS of kind choices, whose second text is null: with the texts to choose from. The label is the number of the right
one, from 0.
"""

SECOND_LENGTH = "second_length"
"""Column in addition to ENCODED, for rows whose two texts are encoded separately: length of the second text, int32.

The length of the first text is first_length.
"""
TEXT_LENGTHS = "text_lengths"
"""Column in addition to ENCODED, for rows of several texts that are encoded separately: the length of each text, a list
of int32. All rows have as many lengths as the row with most texts; 0 stands for a text that a row lacks.
"""
QUERY = "query"
"""Column in addition to ENCODED, for kind ranking: number of the row's query, int64."""
PASSAGE_LENGTHS = "passage_lengths"
"""Column in addition to ENCODED, for rows of whole texts or of choices: the length of each passage of the text, or of
each pair of context and choice, a list of int32.

ids has the passages or pairs one after the other. first_length is that of the row's longest first text.
"""
FIRST_LENGTHS = "first_lengths"
"""Column in addition to PASSAGE_LENGTHS, for rows of choices: the first_length of each pair, a list of int32."""
ENCODED = pa.schema(
    [
        EXAMPLE.field("ids"),  # [CLS] A [SEP], or [CLS] A [SEP] B [SEP] (RoBERTa: two [SEP] after A)
        # number of tokens in [CLS], A and all [SEP] between A and B, so B (segment 1) starts at this index; for a
        # single text, the length of ids
        EXAMPLE.field("first_length"),
        # class number or regression value; null for unlabelled splits and other tasks
        pa.field("label", pa.float32()),
        # multilabel: 0 or 1 per class; tags: tag number of each token, or -100 if it has no label; spans: indices of
        # the answer's first and last token; null for unlabelled splits and other tasks
        pa.field("labels", pa.list_(pa.float32())),
        pa.field("row", pa.int64(), nullable=False),  # index of the row's text, sentence or question in its split
    ]
)
