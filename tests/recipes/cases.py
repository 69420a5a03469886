# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The calls of the recipes that the table has: every script with each of its options."""

from collections.abc import Iterator

TRANSLATION = "wmt14.en-de wmt14.en-fr iwslt14.de-en"
UNDERSTANDING = "xnli pawsx udpos panx xquad mlqa tydiqa"
SUFFIX = {"xnli": "tsv", "pawsx": "tsv", "udpos": "conllu", "panx": "tsv"}  # else json


def cases() -> Iterator[str]:
    """Every call: SCRIPT OPTION..., after VARIABLE=VALUE of its environment. OUT, MODEL and LOCAL are made by the test."""
    yield "toy/prepare --out OUT"
    yield ("toy/prepare --out OUT --seed 2 --words 3 --pairs 4 --mono 5 --finetune-pairs 6 --valid 7 --test 8 --vocab-size 9")
    yield "toy/prepare --out OUT --try --words 5"
    yield "toy/train --out OUT"
    yield "toy/train --out OUT --try --name mine --warmup 3"
    yield "toy/train --out OUT --objective mlm --updates 3 --seed 2 -- --cpu --bitext-mask-prob 0.25"
    for arm in ("veco", "xlm", "random"):
        yield f"toy/finetune --out OUT --arm {arm} --updates 3 --lr 4e-4 --seed 2 -- --cpu --label-smoothing 0.2"
        yield f"multi30k/finetune --out OUT --src de --tgt fr --arm {arm} --updates 3 --lr 5e-4 --seed 2 --name mine -- --cpu"
    yield "toy/finetune --out OUT"
    yield "toy/finetune --out OUT --try --name mine --warmup 3 --save-every 20"
    yield "toy/finetune --out OUT --pretrained-name other --name mine"
    yield "toy/evaluate --out OUT"
    yield "toy/evaluate --out OUT --try --name mine --seed 2 --average 3 --lenpen 0.6 -- --beam 4"
    yield "toy/evaluate --out OUT --split-compounds"
    yield "multi30k/evaluate --out OUT --split-compounds"
    yield "toy/evaluate --out OUT --checkpoint checkpoint_1_100.pt"
    yield "multi30k/prepare --out OUT --local LOCAL"
    yield "multi30k/prepare --out OUT --local LOCAL --src cs --tgt fr --vocab-size 3"
    yield "multi30k/prepare --out OUT --src de --tgt en"
    yield "multi30k/prepare --out OUT --local LOCAL --try"
    yield "multi30k/train --out OUT --try --name mine --warmup 3"
    yield "multi30k/finetune --out OUT --try --warmup 3 --save-every 20"
    yield "multi30k/evaluate --out OUT --try --average 3 --lenpen 0.6 -- --beam 4"
    yield "multi30k/train --out OUT"
    yield "multi30k/train --out OUT --src de --tgt fr --objective mlm --updates 3 --seed 2 -- --cpu --lr 1"
    yield "multi30k/finetune --out OUT"
    yield "multi30k/finetune --out OUT --pretrained-name other --arm xlm --seed 2 --name mine"
    yield "multi30k/evaluate --out OUT"
    yield "multi30k/evaluate --out OUT --src de --tgt fr --name random --seed 2 --checkpoint checkpoint_1_100.pt"
    yield "multi30k/compare --out OUT -- --cpu"
    yield 'multi30k/compare --out OUT --src de --tgt fr --seeds "3 5" --long-lr 7e-4 -- --autocast bf16'
    yield "many-to-many/prepare --out OUT --local LOCAL"
    yield 'many-to-many/prepare --out OUT --langs "de en" --zero-shot de-en --vocab-size 3'
    yield "many-to-many/prepare --out OUT --local LOCAL --try"
    yield 'many-to-many/prepare --out OUT --langs "de sw"'
    yield 'many-to-many/prepare --out OUT --langs "de en" --zero-shot de-fr'
    yield 'many-to-many/prepare --out OUT --local LOCAL --langs "de fr" --zero-shot fr-de'
    yield "many-to-many/train --out OUT"
    yield "many-to-many/train --out OUT --try --objective mlm --name mine --warmup 3 --seed 2 -- --cpu"
    yield "many-to-many/train --out OUT --updates 3"
    yield "many-to-many/finetune --out OUT"
    yield "many-to-many/finetune --out OUT --pretrained-name none"
    yield ('many-to-many/finetune --out OUT --langs "de fr en" --zero-shot fr-de --alpha 1 --arm xlm --name mine --updates 3 '
           "--lr 5e-4 --warmup 2 --save-every 20 --seed 2 -- --cpu")  # fmt: skip
    yield 'many-to-many/finetune --out OUT --directions "en-de de-en" --arm random --try'
    yield 'many-to-many/finetune --out OUT --directions "en-de de-nl"'
    yield 'many-to-many/finetune --out OUT --langs "de en" --zero-shot "de-en en-de"'
    yield 'many-to-many/evaluate --out OUT --langs "de en" --zero-shot de-en'
    yield "many-to-many/evaluate --out OUT --try"
    yield ("many-to-many/evaluate --out OUT --directions en-cs --name mine --seed 2 --checkpoint checkpoint_1_100.pt --lenpen 0.6 "
           "--average 2 --split-compounds -- --beam 4")  # fmt: skip
    yield 'multilingual/prepare --out OUT --documents LOCAL --langs "de fr"'
    yield ('multilingual/prepare --out OUT --documents LOCAL --captions LOCAL --more "LOCAL/more LOCAL/news" --langs "en fr" '
           "--pivot de --vocab-size 3")  # fmt: skip
    yield 'multilingual/prepare --out OUT --local LOCAL --langs "de fr" --try'
    yield 'multilingual/prepare --out OUT --local LOCAL/bible --documents none --captions LOCAL/multi30k --langs "de mi"'
    yield "multilingual/prepare --out OUT"
    yield "multilingual/prepare --out OUT --local LOCAL --langs de --more LOCAL/none"
    yield "multilingual/train --out OUT"
    yield "multilingual/train --out OUT --try"
    yield "multilingual/train --out OUT --try --xlm-updates 0 --warmup 3 --updates 4"
    yield ("multilingual/train --out OUT --xlm-updates 0 --updates 3 --frozen-updates 2 --xlme-updates 4 --name mine --seed 2 "
           "-- --cpu --lr 1")  # fmt: skip
    yield "multilingual/train --out OUT --init-from LOCAL --frozen-updates 2 --updates 3 -- --freeze-backbone-updates 3"
    yield "multilingual/train --out OUT --xlm-updates 5 --updates 0"
    for task in TRANSLATION.split():
        yield f"{task}/prepare --out OUT --pretrained MODEL"
        yield f"{task}/prepare --out OUT --pretrained MODEL --local LOCAL --keep 3"
        for arm in ("veco", "xlm", "random"):
            yield f"GPUS=4 {task}/finetune --out OUT --pretrained MODEL --arm {arm} --seed 2"
        yield (f"{task}/finetune --out OUT --pretrained MODEL --decoder-layers 3 --layer-selection first --name mine "
               f"--max-tokens 300 --updates 4 --warmup 2 --lr 3 --batch-tokens 1000 --save-every 5 "
               f"--tie-self-attention {'yes' if task.startswith('iwslt') else 'no'} -- --cpu --dropout 0.2")  # fmt: skip
        yield (f"VECO_NODE_RANK=1 VECO_MASTER=a:1 {task}/finetune --out OUT --pretrained MODEL --workers 2 --nodes 3 "
               f"--node-rank 0 --master b:2 -- --amp")  # fmt: skip
        yield f"{task}/prepare --out OUT --try"
        yield f"{task}/prepare --out OUT --try --local LOCAL"
        yield f"{task}/prepare --out OUT --try --local LOCAL --pretrained MODEL"
        yield f"{task}/finetune --out OUT --try"
        yield f"{task}/finetune --out OUT --try --updates 4 --pretrained MODEL -- --cpu"
        tied = "yes" if task.startswith("iwslt") else "no"
        every = ("--arm xlm --layer-selection first --max-tokens 300 --updates 4 --warmup 2 --lr 3 --batch-tokens 1000 "
                 f"--save-every 5 --tie-self-attention {tied} --average 3 --seed 2 --workers 2 -- --cpu --dropout 0.2")  # fmt: skip
        given = "--out OUT --pretrained MODEL --monolingual LOCAL/mono"
        yield f"GPUS=1 {task}/backtranslate {given}"
        yield f"{task}/backtranslate {given} --topk 0 --tag SYN --repeat 2 --name both --decoder-layers 3 {every}"
        yield f"{task}/backtranslate {given} --try"
        yield f"{task}/backtranslate --out OUT --pretrained MODEL --monolingual LOCAL/blank"
        yield f"GPUS=1 {task}/distill --out OUT --pretrained MODEL"
        yield f"{task}/distill --out OUT --pretrained MODEL"
        yield f"{task}/distill --out OUT --pretrained MODEL --teacher mine --decoder-layers 2 --name small {every}"
        yield f"{task}/distill --out OUT --try"
        yield f"{task}/distill --out OUT --pretrained MODEL --nodes 2"
        yield f"{task}/evaluate --out OUT --average 30 --try"
        yield f"{task}/evaluate --out OUT --checkpoint checkpoint_1_100.pt"
        yield f"{task}/evaluate --out OUT --name short --split-compounds"
        yield f"{task}/evaluate --out OUT"
        yield f"{task}/evaluate --out OUT --name mine --seed 2 --average 3 --lenpen 0.6 -- --beam 4"
    for task in UNDERSTANDING.split():
        yield f"xtreme/{task}/prepare --out OUT"
        yield f"xtreme/{task}/prepare --out OUT --hold-out 3"
        yield f'xtreme/{task}/prepare --out OUT --local LOCAL --langs "en de"'
        suffix = SUFFIX.get(task, "json")
        yield (f"xtreme/{task}/prepare --out OUT --local LOCAL --train t.@.{suffix} --test e.@.{suffix} --hold-out 3 "
               '--langs "en de"')  # fmt: skip
        yield f"xtreme/{task}/prepare --out OUT --local LOCAL --dev t.@.{suffix} --langs de"
        yield f"xtreme/{task}/finetune --out OUT --pretrained MODEL --epochs 1 --batches 2 -- --cpu"
        yield f"xtreme/{task}/finetune --out OUT --pretrained MODEL --seeds 1 --lrs 7e-6 -- --cpu"
        yield f"xtreme/{task}/prepare --out OUT --try --local LOCAL --hold-out 3 --langs en"
        yield f"xtreme/{task}/finetune --out OUT --try --seed 2 -- --cpu"
        yield f"xtreme/{task}/evaluate --out OUT"
        yield f"xtreme/{task}/evaluate --out OUT --try --seed 1"
        yield f'xtreme/{task}/evaluate --out OUT --name mine --seeds "2 3" --from OTHER -- --cpu'
    # what finetune.sh does with its options is of lib/understanding.sh, and so the same for all tasks
    for arm in ("pretrained", "random"):
        for setting, plug in (("transfer", "out"), ("translate-train", "out"), ("translate-train", "in")):
            yield (f"xtreme/xnli/finetune --out OUT --pretrained MODEL --arm {arm} --setting {setting} --plug {plug} "
                   '--seeds "2 3" --epochs 4 --batches 6 --lrs 7e-6 -- --cpu')  # fmt: skip
    yield ("GPUS=4 xtreme/xnli/finetune --out OUT --pretrained MODEL --arch veco_nlu_tiny --name mine --workers 2 "
           '--epochs "4 5" --batches "6 8" --lrs "1e-6 2e-6" -- --amp')  # fmt: skip
    yield ("xtreme/xnli/finetune --out OUT --pretrained MODEL --setting translate-train --epochs 1 --batches 2 -- --cpu")
    for task in ("mlqa", "xquad"):
        yield f'xtreme/{task}/prepare --out OUT --translations LOCAL --langs "en de"'
    yield "xtreme/bucc/prepare --out OUT"
    yield "xtreme/bucc/prepare --out OUT --local LOCAL --dev bucc.@ --test bucc.@ --langs de"
    yield "xtreme/bucc/evaluate --out OUT --pretrained MODEL"
    yield "xtreme/bucc/evaluate --out OUT --pretrained MODEL --name mine --layer 3 -- --cpu"
    yield 'xtreme/tatoeba/prepare --out OUT --langs "deu fra"'
    yield "xtreme/tatoeba/prepare --out OUT --local LOCAL --langs deu"
    yield "xtreme/bucc/prepare --out OUT --try --local LOCAL --dev bucc.@ --test bucc.@ --langs de"
    yield "xtreme/bucc/evaluate --out OUT --try"
    yield "xtreme/tatoeba/prepare --out OUT --try --local LOCAL --langs deu"
    yield "xtreme/tatoeba/evaluate --out OUT --try"
    yield "xtreme/tatoeba/evaluate --out OUT --pretrained MODEL"
    yield "xtreme/tatoeba/evaluate --out OUT --pretrained MODEL --name mine -- --cpu"
    yield "evidence/prepare --out OUT --local LOCAL"
    yield "evidence/prepare --out OUT --local LOCAL --try"
    yield "evidence/prepare --out OUT"
    for arm in ("veco", "no-stop", "xlm", "xlm-updates", "veco-mono", "xlm-mono", "nmt", "nmt-more", "mbart", "xlme", "no-bitext-s",
                "no-mono-s", "no-tlm", "mask-0.15", "mask-0.25", "mask-0.5", "veco-begun", "deep",
                "veco-8", "xlm-8", "nmt-8", "mbart-8", "no-stop-8", "xlm-updates-8", "veco-nmt", "veco-nmt-8", "nmt-more-8",
                "from-xlm", "veco-few", "xlm-few", "nmt-few", "veco-long", "xlm-long", "nmt-long", "deep-last-3", "random",
                "bert"):  # fmt: skip
        yield f"evidence/train --out OUT --arm {arm} --seed 2 -- --cpu"
    yield "evidence/train --out OUT --try"
    yield "evidence/train --out OUT --arm nmt -- --autocast bf16"
    yield "evidence/train --out OUT --arm veco-nmt --seed 3 -- --autocast bf16"
    yield "evidence/train --out OUT --arm veco-nmt-8 --seed 3 -- --cpu"
    yield "evidence/train --out OUT --arm from-xlm --seed 3 -- --cpu"
    for arm in ("veco", "no-stop", "veco-mono", "xlm", "xlm-updates", "xlm-mono", "nmt", "nmt-more", "mbart", "veco-8", "xlm-8",
                "nmt-8", "mbart-8", "veco-nmt", "nmt-more-8", "no-stop-8", "veco-few", "nmt-few", "random"):  # fmt: skip
        yield f"evidence/finetune --out OUT --arm {arm} --data en-de.500 --pretraining 3 --seed 2 -- --cpu"
    yield "evidence/finetune --out OUT --arm no-tlm --data en-de.2000 --pretraining 3 -- --cpu"
    for arm in ("deep-last-3", "deep-first-1", "deep-spread-2", "deep-all-6", "deep-random-3"):
        yield f"evidence/finetune --out OUT --arm {arm} --data en-de.2000 --pretraining 3 --seed 2 -- --cpu"
    yield "evidence/attention --out OUT --arm veco --pretraining 3"
    yield "evidence/attention --out OUT --arm xlm --try"
    yield "evidence/cost --out OUT --arm nmt --pretraining 3 --results RESULTS"
    yield "evidence/cost --out OUT --try"
    yield "evidence/finetune --out OUT --arm xlm --data en-fr.29000 --lr 5e-4 -- --cpu --autocast bf16 --patience 3"
    yield "evidence/finetune --out OUT --data en-de.8000 --dropout 0.2 --results RESULTS"
    yield "evidence/finetune --out OUT --arm xlm-8 --data en-de.29000"
    yield "evidence/finetune --out OUT --data en-de.77"
    yield "evidence/finetune --out OUT --try"
    yield "evidence/evaluate --out OUT --arm xlm --data en-de.29000 --pretraining 3 --seed 2 -- --beam 4"
    yield "evidence/evaluate --out OUT --lr 1e-3 --dropout 0.1 --results RESULTS"
    yield "evidence/evaluate --out OUT --try"
    yield "evidence/prepare_understanding --out OUT --local LOCAL"
    yield "evidence/prepare_understanding --out OUT --local LOCAL --try"
    yield "evidence/prepare_understanding --out OUT"
    for task, arm, plug in (
        ("xnli", "veco", "in"), ("xnli", "veco", "out"), ("xnli", "xlm", "out"), ("xnli", "random", "out"), ("udpos", "veco", "out"), ("pud", "veco", "in"),
        ("tatoeba", "veco", "out"), ("flores", "xlme", "out"), ("tatoeba", "random", "out"), ("flores", "veco", "in"),
        ("udpos", "veco", "in"),
    ):  # fmt: skip
        yield (f"evidence/understand --out OUT --task {task} --arm {arm} --plug {plug} --pretraining 3 --seed 2 --results RESULTS "
               "-- --cpu --autocast bf16")  # fmt: skip
    yield "evidence/understand --out OUT --try"
    yield "evidence/understand --out OUT --task squad"
    yield "evidence/prepare_bible --out OUT --local LOCAL"
    yield "evidence/prepare_bible --out OUT --local LOCAL --try"
    yield "evidence/prepare_bible --out OUT"
    for arm in ("veco", "xlm", "nmt"):
        yield f"evidence/train --out OUT --set bible --arm {arm} --seed 2 -- --cpu"
    yield "evidence/train --out OUT --set book"
    yield "evidence/finetune --out OUT --set bible --arm xlm --data en-mi.22317 --pretraining 3 --seed 2 -- --cpu"
    yield "evidence/finetune --out OUT --set bible"
    yield "evidence/evaluate --out OUT --set bible --arm xlm --data en-mi.22317 --pretraining 3 --seed 2 --results RESULTS"
    yield "evidence/compare --out OUT --local LOCAL --results RESULTS -- --cpu --autocast bf16"
    yield "evidence/compare --out OUT --list --try"
    yield "evidence/compare --out OUT --only prepare --try"
    # without --out, in the recipe's own folder, which here has nothing
    yield from (
        "toy/train",
        "toy/evaluate",
        "multi30k/train",
        "multi30k/finetune --arm random --src de --tgt fr",
        "many-to-many/train",
        "many-to-many/finetune --arm random",
        "multilingual/train",
        "wmt14.en-de/finetune --pretrained MODEL",
        "iwslt14.de-en/distill --pretrained MODEL --arm xlm",
        "xtreme/udpos/finetune --pretrained MODEL",
        "xtreme/panx/evaluate",
        "xtreme/tatoeba/evaluate --pretrained MODEL",
        "xtreme/bucc/evaluate --pretrained MODEL --try",
        "evidence/train --arm nmt",
        "evidence/attention --arm deep-last-3",
        "evidence/cost",
        "evidence/understand --task flores",
        "evidence/evaluate",
        "evidence/finetune --lr 1e-3 --dropout 0.1 --arm random",
    )
    # what is missing is told before a program starts
    yield "xtreme/xnli/evaluate --out OUT --seeds 7"
    yield "evidence/evaluate --out OUT --lr 7 --dropout 0.7"
    for option in ("--repeat 0", "--average 0", "--topk 1.5", "--nodes 2", "--monolingual none", "--monolingual ''"):
        yield f"wmt14.en-fr/backtranslate --out OUT --pretrained MODEL --monolingual LOCAL/mono {option}"
