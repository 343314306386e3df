#!/usr/bin/env bash
# Runs the engine's unit tests under Miri, which finds undefined behaviour and out-of-bounds reads: the pure modules and
# loads over the storage in memory. Without codecs, since those of the C library cannot run there. Needs nightly + miri.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo +nightly miri --version >/dev/null 2>&1; then
  if [[ ",${REDRIVE_REQUIRE:-}," == *,miri,* ]]; then
    echo "miri: nightly with miri is missing, and it is required here" >&2
    exit 1
  fi
  echo "miri: skipped, it needs 'rustup toolchain install nightly --component miri'" >&2
  exit 0
fi
# Nothing here needs isolation from the clock, which loads look at. Miri runs on one core, so there are two of it.
export MIRIFLAGS="-Zmiri-disable-isolation"
run=(cargo +nightly miri test -p redrive --no-default-features --lib)
"${run[@]}" --no-run
"${run[@]}" replay:: &
"${run[@]}" -- --skip replay::
wait $!
