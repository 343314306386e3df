#!/usr/bin/env bash
# record.sh SCENARIO LABEL LOG_DIR [THREADS] [IDENTITY]
#
# Profiles one load of LOG_DIR, as `bench` makes it, and writes flamegraphs/SCENARIO-COMMIT-LABEL.svg and, beside it in
# text, the functions that took most. SCENARIO and LABEL are only names; THREADS is 1 and IDENTITY exact (or hash) unless
# given. The log directories of scenarios lie below bench's --data folder.
#
# Needs perf, and inferno: cargo install inferno --locked. The clock of the CPU is sampled, not its cycles: virtual
# machines have no counters. Frame pointers are kept, which costs a percent or two: take times from bench, not from here.
set -euo pipefail
scenario=$1 label=$2 log_dir=$(realpath "$3") threads=${4:-1} identity=${5:-exact}
here=$(cd "$(dirname "$0")" && pwd)
for tool in perf inferno-collapse-perf inferno-flamegraph; do
  command -v "$tool" > /dev/null || { echo "record.sh: there is no $tool on the path" >&2; exit 1; }
done

cd "$here/.."
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- engine bench-harness || commit=$commit+
target=${CARGO_TARGET_DIR:-target}/flamegraphs
RUSTFLAGS="-C force-frame-pointers=yes" cargo build --quiet --release -p redrive-bench --target-dir "$target"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
job=$(printf '{"root":"%s","work":{"redrive":{"threads":%d,"identity":"%s","io":"mmap","loads":1}},"answer":false}' \
  "$log_dir" "$threads" "$identity")
# Warm, as the scenarios are.
cat "$log_dir"/__transaction_state-*/*.log > /dev/null
perf record --quiet --event cpu-clock --freq 4999 --call-graph fp --output "$scratch/perf.data" -- \
  "$target/release/bench" measure-once "$job" > "$scratch/measured.json"
perf script --input "$scratch/perf.data" 2> /dev/null | inferno-collapse-perf > "$scratch/stacks"
name=$scenario-$commit-$label
inferno-flamegraph --title "$name" --subtitle "$threads threads, $identity identity, mmap, warm; cpu-clock" \
  < "$scratch/stacks" > "$here/$name.svg"
perf report --input "$scratch/perf.data" --no-children --percent-limit 1 --stdio --call-graph none 2> /dev/null |
  grep -v '^#' | grep . > "$here/$name.txt" || true
cat "$scratch/measured.json"
echo "$here/$name.svg"
