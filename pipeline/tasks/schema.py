"""The pyarrow schemas of a task's rows: as they are read, and as ids."""

import pyarrow as pa

from pipeline.text.schema import EXAMPLE

TEXTS = pa.schema(
    [
        pa.field(
            "id", pa.string(), nullable=False
        ),  # the file's own, where it has one; else GLUE: number of the row from 0, own files: its line from 1
        pa.field("first", pa.string(), nullable=False),  # segment A
        pa.field("second", pa.string()),  # segment B; null for tasks on single texts
        pa.field(
            "label", pa.string()
        ),  # as written in the file; null where the split has none; of a multilabel task a JSON list of texts
    ]
)

ENCODED = pa.schema(
    [
        EXAMPLE.field("ids"),  # [CLS] A [SEP], or [CLS] A [SEP] B [SEP]
        EXAMPLE.field(
            "first_length"
        ),  # length of [CLS] A [SEP]: where segment 1 starts; for a single text, the length of ids
        pa.field(
            "label", pa.float32()
        ),  # class number, or the value of a regression; null where the split has none, and for a multilabel task
        pa.field(
            "labels", pa.list_(pa.float32())
        ),  # multilabel: 0 or 1 for each class; tags: of each token its number, or -100; spans: first and last token; null where the split has none, and for other tasks
        pa.field("row", pa.int64(), nullable=False),  # place in the table of TEXTS
    ]
)
