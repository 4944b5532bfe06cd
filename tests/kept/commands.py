"""The commands that wrote the kept folders; run in a copy of the folders, each continues what it left behind."""

CPU = "--placement.device cpu --placement.precision float32 --placement.threads 1"
RUN = f"""--corpus corpus --sampling.maximum-length 32
    --model.layers 2 --model.width 16 --model.heads 2 --model.feed-forward 32 --model.maximum-positions 32
    --batch.rows-per-step 16 --batch.rows-per-slot 4 --evaluation.every 6 --evaluation.rows 32 --checkpoint.every 6
    --checkpoint.keep 2 --tracking.every 1 --placement.compile off --placement.data-cpus 1 {CPU}"""
STOPPED, STEPS = 6, 12
"""Steps of the kept run, and of its command."""
PRETRAIN = f"""bert-tiny --name stopped --output output --steps {STEPS} --vocabulary.size 150
    optimizer:adam-w --optimizer.learning-rate 1e-2 {RUN}""".split()
GIVEN = f"--vocabulary.path output/runs/stopped/vocabulary {RUN}"
MODERNBERT = f"""modernbert-tiny --name modernbert --output output --steps 2 --schedule.warmup-steps 1
    {GIVEN}""".split()
ABLATE = f"""--over sampling.masking.share=0.15,0.3 --seeds 1 --tokens 4k --output ablation optimizer:adam-w
    --optimizer.learning-rate 1e-2 {GIVEN}""".split()

TUNED = f"""--checkpoint export --recipe.epochs 8 --recipe.rows-per-step 16 --trials.at-once 1
    --trials.gpus 0 {CPU}"""
GRID = f"""--train tables/moods.csv --dev tables/moods.csv --seeds 1 --search.over optimizer.learning_rate=1e-3,1e-2
    --register moods --output output {TUNED}""".split()
MODEL = f"--seeds 1 --output output --optimizer.learning-rate 1e-2 {TUNED}"
TUNINGS = {
    "tags": f"--train tables/tags.conll --dev tables/tags.conll --recipe.crf {MODEL}".split(),
    "likeness": f"--train tables/likeness.csv --dev tables/likeness.csv --kind similarity {MODEL}".split(),
    "ratings": f"""--train tables/ratings.csv --dev tables/ratings.csv --kind regression
    adapter:bottleneck --adapter.width 4 {MODEL}""".split(),
}
"""Task -> command."""
LOW_RANK = f"""--train tables/moods.csv --dev tables/moods.csv --seeds 1 --output tuning --optimizer.learning-rate 1e-2
    adapter:low-rank --adapter.rank 2 {TUNED}""".split()
DONE_EPOCHS = 4
"""Epochs that the stopped trial has a checkpoint of, of 8."""

PARTS = f"--rows-per-part 10 --actors 1 {CPU}"
PREDICT = f"--checkpoint models/moods --input texts --output answers.jsonl {PARTS}".split()
EMBED = f"--checkpoint models/likeness --input texts {PARTS}".split()
VECTORS = [*EMBED, "--output", "vectors"]
STOPPED_VECTORS = [*EMBED, "--output", "stopped-vectors"]
DONE_PARTS = 2
"""Parts of the stopped predictions and vectors, which need 4."""
SEARCH = ["--vectors", "vectors", "--top", "5", "--index", "on", "--output", "found.jsonl", "--queries"]
