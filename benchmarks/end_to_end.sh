#!/usr/bin/env bash
# The walk on real photos: the first rows of docs/benchmarks/real-photos.md. Usage: end_to_end.sh PHOTOS RUNS,
# where PHOTOS holds the sets named below and weights/, and RUNS is where the runs go. Epochs are judged by the run's own
# validation identities.
set -euo pipefail
photos=$1 runs=$2
weights=$photos/weights/mobilenet_v3_small_imagenet_dequant_torchvision_keys.npz
lfw=$photos/lfw_112
cats=$photos/cats23_gpriamo
animals=("$photos/holstein2025_cows" "$photos/dogs29_stdove" "$photos/pandas31_faces")
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

common=(
    --set "model.initial_weights=$weights" --set input.size_px=112 --set split.test=0
    --set optimizer.warmup_epochs=1 --set 'loss.margin_rad=0 to 0.3 over 0.334' --set model.dropout=0.2
    --set validation.every_epochs=2
)
# The rows were made with the first four operations of the augmentation, before the other seven were there.
for operation in gray blur noise jpeg downscale shadow dropout; do
    common+=(--set "augmentation.${operation}_p=0")
done
# Thousands of people with few photos each: faster rates, no smoothing, and gentle changes, since these crops are
# aligned and their colors tell little.
people=(
    --identities "$lfw/peopleDevTrain.txt" --set split.min_photos=2 --set optimizer.lr=1e-3
    --set optimizer.backbone_lr=2e-4 --set loss.label_smoothing=0 --set augmentation.rotate_deg=8
    --set augmentation.rotate_p=0.3 --set augmentation.hue=0.03 --set augmentation.affine_p=0.7
    --set augmentation.translate=0.06 --set augmentation.scale=0.08
)
# Few animals with many frames of the same minutes each: at most 25 photos, and the published augmentation.
few=(--max-photos 25 --set optimizer.lr=5e-4 --set optimizer.backbone_lr=1e-4)

row() { # row NAME: train once, then measure on what it never saw
    local name=$1
    shift
    [ -e "$runs/$name/model.onnx" ] || familiar train "$@" --output "$runs/$name" "${common[@]}"
}

measure() { # measure NAME LABEL MODEL-ARGUMENTS...
    local name=$1 label=$2
    shift 2
    echo "== $name on $label"
    familiar evaluate "$runs/$name" "$@" --output "$runs/$name/on $label"
    echo "== $name on $label, with flip"
    familiar evaluate "$runs/$name" "$@" --tta --output "$runs/$name/on $label, flip"
}

row people "$lfw" "${people[@]}" --set budget.epochs=22
measure people "LFW DevTest" "$lfw" --pairs "$lfw/pairsDevTest.txt"
measure people cats "$cats"

row animals "${animals[@]}" "${few[@]}" --set budget.epochs=14
measure animals cats "$cats"

row animals-and-people "${animals[@]}" "$lfw" "${people[@]}" --max-photos 25 --set budget.epochs=14
measure animals-and-people cats "$cats"
