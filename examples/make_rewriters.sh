#!/usr/bin/env bash
# Makes the rewriters that configs/rewriting/methods-grid.yaml and adept-grid.yaml compare, side by side on one GPU.
#
#   bash examples/make_rewriters.sh sentence-transformers/all-MiniLM-L6-v2
#
# data/tatoeba.txt has 60,000 public sentences, data/tatoeba-all.txt all that there are, data/vectors.txt a public word
# and its vector a line; data/snips and data/atis have train, valid and test. What is there already is not made again.
# Each has a log of its own in rewriters/.
set -uo pipefail
encoder=$1
mkdir -p rewriters

make() { # name, then flags
  local name=$1 began=$SECONDS
  shift
  [ -e "rewriters/$name/rewriter.json" ] && return
  rm -rf "rewriters/$name"
  python -m dpnlp pretrain --output "rewriters/$name" "$@" >"rewriters/$name.log" 2>&1
  echo "$name: exit code $?, $((SECONDS - began)) s"
}
few=(--data.train data/tatoeba.txt --data.public)
all=(--data.train data/tatoeba-all.txt --data.public --learning.seed 0)
bart() { make "$1" --method dp-bart "${all[@]}" --learning.batch 128 "${@:2}"; }
pruned=(--model.start rewriters/dp-bart-clv/model --model.rounds 6 --learning.steps-a-round 150
  --learning.steps-with-noise 2000)

make echo --method echo "${few[@]}" --model.encoder "$encoder" &
make noisy-echo --method noisy-echo "${few[@]}" --model.encoder "$encoder" &
make retell --method retell "${all[@]}" --model.encoder "$encoder" --model.start scratch --model.delta 1e-5 \
  --learning.batch 256 --learning.rate 5e-4 --learning.steps 8000 &
make words --method words --vectors data/vectors.txt &
make adept --method adept "${few[@]}" --learning.lot-size 64 --learning.epochs 8 &
for corpus in snips atis; do
  make "adept-$corpus" --method adept --data.train "data/$corpus/train/seq.in" --data.unsafe \
    --learning.lot-size 64 --learning.epochs 30 &
done
bart dp-bart-clv --model.start scratch --learning.steps 6000 --learning.rate 5e-4
make sampling --method sampling "${few[@]}" --model.start rewriters/dp-bart-clv/model &
bart dp-bart-pr "${pruned[@]}" &
for epsilon in 500 250 100; do
  bart "dp-bart-pr-plus-$epsilon" "${pruned[@]}" --model.epsilon "$epsilon" --model.delta 1e-5 &
done
wait
