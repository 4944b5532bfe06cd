"""The pyarrow schemas of documents, examples and rows."""

import pyarrow as pa

DOCUMENT = pa.schema(
    [
        # unique in the corpus: source, position in the source, number of the piece
        pa.field("id", pa.string(), nullable=False),
        # the same for all pieces of one book; segment B of a NotNext pair comes from another parent
        pa.field("parent", pa.string(), nullable=False),
        pa.field("title", pa.string(), nullable=False),  # for display only; may be empty
        pa.field("text", pa.string(), nullable=False),  # paragraphs separated by line feeds
        pa.field("source", pa.string(), nullable=False),  # the value of --corpus that the document came from
        pa.field("lines_are_sentences", pa.bool_(), nullable=False),  # whether each line of the text is one sentence
        pa.field("language", pa.string(), nullable=False),  # a code that the sentence splitter knows, such as "de"
    ]
)

EXAMPLE = pa.schema(
    [
        # [CLS] A [SEP] B [SEP] (RoBERTa: two [SEP] after A), or [CLS] and text with a [SEP] after each document; masked
        # positions are already replaced
        pa.field("ids", pa.list_(pa.int32()), nullable=False),
        # number of tokens in [CLS], A and all [SEP] between A and B, so B (segment 1) starts at this index; without a
        # pair task, the length of ids. A row of two texts has one [SEP] after A in all vocabularies, and no masks; its
        # hard negatives follow after B, each with a [SEP]
        pa.field("first_length", pa.int32(), nullable=False),
        pa.field("masked_positions", pa.list_(pa.int32()), nullable=False),  # increasing indices into ids
        pa.field("masked_labels", pa.list_(pa.int32()), nullable=False),  # the original ids at these positions
        # label of next-sentence prediction: B is from another parent (in google-research/bert: is_random_next); null in
        # other tasks
        pa.field("not_next", pa.bool_()),
        # label of sentence-order prediction: B comes before A in the text; null in other tasks
        pa.field("swapped", pa.bool_()),
        # the document of segment A, as an index in the window; without a pair task, the first document of the text
        pa.field("document_a", pa.int32(), nullable=False),
        # the document of segment B, as an index in the window; without a pair task, the last document of the text
        pa.field("document_b", pa.int32(), nullable=False),
        # for rows of two texts: hash of the id of the parent of A's document; null in other rows
        pa.field("parent", pa.int64()),
        # for rows with hard negatives: the length of each as a sequence of its own, with [CLS] and [SEP]; 0 if the row
        # has fewer negatives than others of its table; null in other rows
        pa.field("negative_lengths", pa.list_(pa.int32())),
        # for rows of two texts with prompts: number of tokens of the prompt of A, and of that of B and of the hard
        # negatives; each prompt follows the [CLS] of its text. null in other rows
        pa.field("prompt_lengths", pa.list_(pa.int32())),
        # for rows that a teacher with another vocabulary reads: the text between [CLS] and [SEP]; null in other rows
        pa.field("text", pa.string()),
    ]
)

ROW = pa.schema(
    list(EXAMPLE)
    + [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("window", pa.int64(), nullable=False),  # position in the epoch's permuted order, not in the corpus
        pa.field("row", pa.int64(), nullable=False),  # index of the row in its window
        # number of rows in the window, to recognise its last row
        pa.field("rows_in_window", pa.int64(), nullable=False),
    ]
)
CUT = b"cut"
"""Key of the metadata of answers and of a part; its value is the number of truncated texts."""
