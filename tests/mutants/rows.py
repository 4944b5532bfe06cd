"""Mutants of what goes in and comes out: ids, masks, pairs, corpora, labels, prompts, vectors and scores."""

from tests.mutants.mutant import Mutant

MASKING = "tests/unit/text/test_masking.py"
PAIRS = "tests/unit/text/test_pairs.py"
IDS = "tests/unit/text/test_cached_tokenizer.py"

OF_ROWS = (
    # Exact ids
    Mutant(
        name="sentences-run-together",
        guarantee="exact ids: those of tokenizers, for any text",
        file="text/cached_tokenizer.py",
        before="        cuts[bounds] = True\n",
        after="        cuts[bounds[[0, -1]]] = True\n",
        tests=(IDS,),
    ),
    Mutant(
        name="separator-taken-for-granted",
        guarantee="exact ids: those of tokenizers, for any text",
        file="text/cached_tokenizer.py",
        before="if joined.count(MARK) != len(chunks) - 1:",
        after="if joined.count(MARK) < len(chunks) - 1:",
        tests=(IDS,),
    ),
    Mutant(
        name="cut-before-contractions",
        guarantee="exact ids: those of tokenizers, for any text",
        file="text/cuts.py",
        before="table[QUOTE, DIGIT] = True",
        after="table[QUOTE, [LETTER, DIGIT]] = True",
        tests=("tests/unit/text/test_cuts.py",),
    ),
    Mutant(
        name="table-grows-for-ever",
        guarantee="bounded memory: the table of chunks is cleared when it is full",
        file="text/cached_tokenizer.py",
        before="if len(self.entries) > self.most or len(self.offsets) > 2 * self.most:",
        after="if len(self.entries) > self.most:",
        tests=(IDS,),
    ),
    Mutant(
        name="added-tokens-join-words",
        guarantee="added tokens: each is one token and a word of its own",
        file="text/words.py",
        before="tied &= ~vocabulary.whole[ids[:-1]]",
        after="tied &= True",
        tests=("tests/parity/test_added_tokens.py",),
    ),
    # Masks
    Mutant(
        name="no-random-replacements",
        guarantee="masks: 80% become [MASK], 10% a random entry, 10% stay",
        file="text/masking.py",
        before="np.where(draws < settings.mask_share + settings.random_share, random_ids, labels)",
        after="np.where(draws < settings.mask_share, random_ids, labels)",
        tests=(MASKING,),
    ),
    Mutant(
        name="special-replacements",
        guarantee="masks: random entries are never special tokens",
        file="text/masking.py",
        before="vocabulary.ordinary_ids[rng.integers(0, len(vocabulary.ordinary_ids), len(labels))]",
        after="rng.integers(0, len(vocabulary.tokens), len(labels))",
        tests=(MASKING,),
    ),
    Mutant(
        name="separators-masked",
        guarantee="masks: [CLS], [SEP] and [PAD] are never masked",
        file="text/words.py",
        before="(ids != vocabulary.cls_id) & (ids != vocabulary.sep_id) & (ids != vocabulary.pad_id)",
        after="(ids != vocabulary.cls_id) & (ids != vocabulary.pad_id)",
        tests=(MASKING,),
    ),
    Mutant(
        name="masked-share-rounded-up",
        guarantee="masks: the rounded share of a sequence is masked, and never more",
        file="text/masking.py",
        before="np.rint(settings.share * np.diff(offsets))",
        after="np.ceil(settings.share * np.diff(offsets))",
        tests=(MASKING,),
    ),
    Mutant(
        name="long-words-fit",
        guarantee="masks: the rounded share of a sequence is masked, and never more",
        file="text/words.py",
        before="fits = size <= room[sequence]",
        after="fits = room[sequence] > 0",
        tests=(MASKING,),
    ),
    # Pairs of segments
    Mutant(
        name="not-next-from-own-parent",
        guarantee="pairs: NotNext comes from another parent document",
        file="text/next_sentence.py",
        before="self.documents[np.where(index < first, index, index + last - first)]",
        after="self.documents[index]",
        tests=(PAIRS,),
    ),
    Mutant(
        name="coin-unfair",
        guarantee="pairs: half of the pairs are IsNext, as in google-research/bert",
        file="text/next_sentence.py",
        before="is_next = rng.random(len(chunks.owner)) < 0.5",
        after="is_next = rng.random(len(chunks.owner)) < 0.6",
        tests=(PAIRS,),
    ),
    Mutant(
        name="order-label-inverted",
        guarantee="pairs: the label of sentence order says which segment came first",
        file="text/sentence_order.py",
        before="(documents, documents), swapped=swapped)",
        after="(documents, documents), swapped=~swapped)",
        tests=("tests/unit/text/test_sentence_order.py",),
    ),
    # The prepared corpus
    Mutant(
        name="heldout-by-text",
        guarantee="held-out documents whole: no book or article is held out in part",
        file="corpus/shards.py",
        before='heldout = is_heldout(table["parent_hash"].to_numpy(), settings.heldout_share)',
        after='heldout = is_heldout(numbers(table["key"]), settings.heldout_share)',
        tests=("tests/unit/corpus/test_prepare.py::test_pieces_of_a_held_out_book_are_all_held_out",),
    ),
    Mutant(
        name="heldout-text-trained-on",
        guarantee="held-out documents: texts of which training text has a part are left out",
        file="corpus/shards.py",
        before="limit = np.where(heldout, HELDOUT_OVERLAP, settings.near_duplicates)",
        after="limit = np.where(heldout, settings.near_duplicates, settings.near_duplicates)",
        tests=("tests/unit/corpus/test_shards.py",),
    ),
    # Labelled files
    Mutant(
        name="nan-always-a-class",
        guarantee="labels: nan is a missing number among numbers, and a class among names",
        file="tasks/labels.py",
        before="return bool(others) and _are_numbers(others)",
        after="return False",
        tests=("tests/unit/tasks/test_labels.py",),
    ),
    Mutant(
        name="one-and-one-point-nought",
        guarantee="labels: 1 and 1.0 are one class",
        file="tasks/labels.py",
        before="plain if len(written) > 1 else label",
        after="label",
        tests=("tests/unit/tasks/test_labels.py",),
    ),
    Mutant(
        name="bad-rows-counted-once",
        guarantee="bad rows: refused, or left out and counted by reason",
        file="tasks/bad_rows.py",
        before="self.reasons[error.reason] += 1",
        after="self.reasons[error.reason] = 1",
        tests=("tests/unit/tasks/test_bad_rows.py",),
    ),
    Mutant(
        name="first-bad-row-swallowed",
        guarantee="bad rows: refused, or left out and counted by reason",
        file="tasks/bad_rows.py",
        before="if not self.skip:",
        after="if self.reasons and not self.skip:",
        tests=("tests/unit/tasks/test_bad_rows.py",),
    ),
    # Prompts and vectors
    Mutant(
        name="query-prompt-for-all",
        guarantee="prompts: queries and documents have their own",
        file="text/prompts.py",
        before="first[sequences.offsets[:-1]] = True",
        after="first[:] = True",
        tests=("tests/unit/text/test_prompts.py",),
    ),
    Mutant(
        name="vectors-unscaled",
        guarantee="vectors: of length 1 where the recipe says so",
        file="export/inference.py",
        before="return F.normalize(vectors, dim=1) if normalized else vectors",
        after="return vectors",
        tests=(
            "tests/unit/predict/test_vectors.py"
            "::test_vectors_have_length_1_although_the_model_s_files_do_not_scale_them",
        ),
    ),
    # Scores
    Mutant(
        name="squad-words-as-sets",
        guarantee="scores: SQuAD's exact match and F1 are those of the official scripts",
        file="tasks/squad_metrics.py",
        before="shared = sum((Counter(words) & Counter(wanted)).values())",
        after="shared = len(set(words) & set(wanted))",
        tests=("tests/unit/tasks/test_squad_metrics.py",),
    ),
    Mutant(
        name="entities-of-other-types-joined",
        guarantee="scores: F1 of entities is that of conlleval",
        file="tasks/entities.py",
        before='mark == "I" and (previous == OUTSIDE or split(previous)[1] != kind)',
        after='mark == "I" and previous == OUTSIDE',
        tests=("tests/unit/tasks/test_entities.py",),
    ),
    Mutant(
        name="kappa-for-matthews",
        guarantee="scores: Matthews' correlation, as GLUE scores CoLA",
        file="tasks/metrics.py",
        before="metrics.matthews_corrcoef(labels, predictions)",
        after="metrics.cohen_kappa_score(labels, predictions)",
        tests=("tests/unit/tasks/test_metrics.py",),
    ),
    Mutant(
        name="gain-exponential",
        guarantee="scores: nDCG is that of trec_eval",
        file="retrieval/measures.py",
        before="gains = np.maximum(grades[:CUTOFF], 0)",
        after="gains = 2.0 ** np.maximum(grades[:CUTOFF], 0) - 1",
        tests=("tests/unit/retrieval/test_measures.py",),
    ),
    Mutant(
        name="ties-in-favour",
        guarantee="scores: candidates with equal scores gain nothing from the order of a file",
        file="tasks/ranking_metrics.py",
        before="np.lexsort((labels, -scores, queries))",
        after="np.lexsort((-labels, -scores, queries))",
        tests=("tests/unit/tasks/test_ranking_metrics.py",),
    ),
)
