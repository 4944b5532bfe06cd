"""The pyarrow schema of every stage."""

import pyarrow as pa

DOCUMENT = pa.schema(
    [
        pa.field(
            "id", pa.string(), nullable=False
        ),  # unique in the corpus: source, position in it, number of the piece
        # shared by the pieces of one book; NotNext sentences come from another parent
        pa.field("parent", pa.string(), nullable=False),
        pa.field("title", pa.string(), nullable=False),  # for people; may be empty
        pa.field("text", pa.string(), nullable=False),  # paragraphs separated by line feeds
        pa.field("source", pa.string(), nullable=False),  # the --corpus that it came from
        pa.field("lines_are_sentences", pa.bool_(), nullable=False),  # the source has one sentence per line
        pa.field("language", pa.string(), nullable=False),  # a code that the sentence splitter knows, such as "de"
    ]
)

EXAMPLE = pa.schema(
    [
        # [CLS] A [SEP] B [SEP] (RoBERTa: two [SEP] after A), or [CLS] and text with a [SEP] after each document; masks
        # applied
        pa.field("ids", pa.list_(pa.int32()), nullable=False),
        # length of [CLS] A and its [SEP], where B and segment 1 start; without a pair task, the length of ids
        pa.field("first_length", pa.int32(), nullable=False),
        pa.field("masked_positions", pa.list_(pa.int32()), nullable=False),  # increasing indices into ids
        pa.field("masked_labels", pa.list_(pa.int32()), nullable=False),  # the original ids at these positions
        # label of next-sentence pairs: B is from another parent (google: is_random_next); null for others
        pa.field("not_next", pa.bool_()),
        # label of sentence-order pairs: B comes before A in the text; null for others
        pa.field("swapped", pa.bool_()),
        # index in the window of the document of segment A, or of the text's beginning
        pa.field("document_a", pa.int32(), nullable=False),
        # index in the window of the document of segment B, or of the text's end
        pa.field("document_b", pa.int32(), nullable=False),
    ]
)

ROW = pa.schema(
    list(EXAMPLE)
    + [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("window", pa.int64(), nullable=False),  # position in the epoch's permuted order, not in the corpus
        pa.field("row", pa.int64(), nullable=False),  # index in the window
        pa.field("rows_in_window", pa.int64(), nullable=False),  # shows which row is a window's last
    ]
)
