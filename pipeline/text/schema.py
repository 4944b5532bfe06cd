"""The pyarrow schema of every stage."""

import pyarrow as pa

DOCUMENT = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),  # unique in the corpus: source and place in it, with the piece
        pa.field(
            "parent", pa.string(), nullable=False
        ),  # what the pieces of one book share; NotNext comes from another parent
        pa.field("title", pa.string(), nullable=False),  # for people; may be empty
        pa.field("text", pa.string(), nullable=False),  # paragraphs separated by line feeds
        pa.field("source", pa.string(), nullable=False),  # the --corpus that it came from
        pa.field("lines_are_sentences", pa.bool_(), nullable=False),  # the source gave one sentence a line
        pa.field("language", pa.string(), nullable=False),  # a code that the sentence splitter knows, such as "de"
    ]
)

EXAMPLE = pa.schema(
    [
        pa.field(
            "ids", pa.list_(pa.int32()), nullable=False
        ),  # [CLS] A [SEP] B [SEP], or [CLS] and text with a [SEP] after each document's; masks applied
        pa.field(
            "first_length", pa.int32(), nullable=False
        ),  # length of [CLS] A [SEP]: where segment 1 starts; without a pair task, the length of ids
        pa.field("masked_positions", pa.list_(pa.int32()), nullable=False),  # rising indices into ids
        pa.field("masked_labels", pa.list_(pa.int32()), nullable=False),  # the ids that stood there
        pa.field(
            "not_next", pa.bool_()
        ),  # label of next-sentence pairs: B is from another parent (google: is_random_next); null for others
        pa.field(
            "swapped", pa.bool_()
        ),  # label of sentence-order pairs: B stands before A in the text; null for others
        pa.field(
            "document_a", pa.int32(), nullable=False
        ),  # document of segment A, or of the text's beginning, as its place in the window
        pa.field("document_b", pa.int32(), nullable=False),  # document of segment B, or of the text's end, likewise
    ]
)

ROW = pa.schema(
    list(EXAMPLE)
    + [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("window", pa.int64(), nullable=False),  # place in the epoch's permuted order, not in the corpus
        pa.field("row", pa.int64(), nullable=False),  # place in the window
        pa.field("rows_in_window", pa.int64(), nullable=False),  # so that a window's last row is known
    ]
)
