"""Usual columns by their role: a job takes the first of them that a table has, unless the user names columns."""

import re

TEXT, PAIR, LABEL = OWN = ("text", "pair", "label")
"""Columns of the user's own files, unless the settings name others."""
ID, TITLE, URL = ABOUT = ("id", "title", "url")
"""Columns that identify a row. They are used as text only if the user names one as the text column."""
BEIR_ID = "_id"
"""Column of the ids in BEIR's corpus.jsonl and queries.jsonl."""
WORDS = "words"
"""Column of lists of words."""
CONTEXT, QUESTION, START = "context", "question", "answer_start"
"""Columns of a question; START has the offset of its answer."""
ANSWERS = ("answers", "answer")
CHOICE_LIST = "choices"
"""Column of lists of choices."""
LAYOUTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    # STS-B (Cer et al. 2017) and SICK (Marelli et al. 2014)
    "similarity": (("sentence1", "sentence2", "score"), ("sentence_A", "sentence_B", "relatedness_score")),
    # SNLI and MNLI, SICK, and SNLI on the hub
    "relations": (
        ("sentence1", "sentence2", "gold_label"),
        ("sentence_A", "sentence_B", "entailment_judgment"),
        ("premise", "hypothesis", "label"),
    ),
    # a query, a candidate and whether it is relevant; the last ones are WikiQA's
    "ranking": (
        ("query", "document", "label"),
        ("query", "passage", "label"),
        ("question", "answer", "label"),
        ("question", "sentence", "label"),
        ("Question", "Sentence", "Label"),
    ),
}
"""Kind of task -> columns of published files of two texts with a score, a class or a relevance."""
MATCHING = (("anchor", "positive"), ("query", "positive"), ("question", "positive"), ("question", "answer"))
"""Columns of a text and another text that matches it."""
NEGATIVES = ("negative", "negatives", *(f"negative_{number}" for number in range(1, 10)))
"""Columns of negative texts, for a task."""
FIRST = ("anchor", "query", "question")
"""Columns of the first text of a pair for pretraining."""
SECOND = ("positive", "positives", "pos", "paragraph", "passage", "answer")
"""Columns of the second text of a pair for pretraining."""
NEGATIVE = re.compile(r"(hard_?)?neg(ative)?s?_?\d*")
"""Columns of hard negatives for pretraining, such as negative_2, negatives, neg and hard_negatives."""
