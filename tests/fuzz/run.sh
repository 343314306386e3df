#!/usr/bin/env bash
# run.sh EXECUTIONS [TARGET...]: gives each fuzz target that many inputs (`load`, which starts threads and writes files,
# a twentieth of them) and says how many were run. Needs the nightly toolchain and cargo-fuzz. A crash ends it with a
# failure and the input under tests/fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
executions=${1:?usage: run.sh EXECUTIONS [TARGET...]}
shift
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
  if [[ ",${REDRIVE_REQUIRE:-}," == *,fuzz,* ]]; then
    echo "fuzz: nightly or cargo-fuzz is missing, and they are required here" >&2
    exit 1
  fi
  echo "fuzz: skipped, it needs 'rustup toolchain install nightly' and 'cargo install cargo-fuzz'" >&2
  exit 0
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then targets=(batch key_value files load); fi
# Memory is bounded by what the engine may take for inputs of this size; a target that needs more has found a fault.
flags=(-max_len=32768 -rss_limit_mb=1024 -timeout=20 -verbosity=0 -print_final_stats=1)
seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT
cargo +nightly run --quiet --bin seeds -- "$seeds"
cargo +nightly fuzz build --fuzz-dir .
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target"
  log=$seeds/$target.log
  runs=$executions
  extra=()
  if [ "$target" = load ]; then
    runs=$((executions / 20))
    # The check for leaks runs while threads of the load are still being torn down, and takes their memory for lost.
    extra=(-detect_leaks=0)
  fi
  if ! cargo +nightly fuzz run --fuzz-dir . "$target" "corpus/$target" "$seeds/$target"  -- -runs="$runs" "${extra[@]}" "${flags[@]}" >"$log" 2>&1; then
    tail -60 "$log" >&2
    exit 1
  fi
  count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "fuzz: $target: $count executions, no fault"
done
