#!/usr/bin/env bash
# Counts instructions per frame, per response and per request with valgrind. The counts are exact and the same on every
# run (in an empty environment: the start of the stack decides how copies are aligned). Compares them with
# benches/instructions.txt and fails if a case needs over 2 % more, or over 1 % more if it is traffic of one format
# (rows without `-to-`). `--record` rewrites that file: review its diff before you commit it. Counts
# depend on the compiler and on the processor's features (memchr selects by them), so the file names both.
set -euo pipefail
cd "$(dirname "$0")/.."

bound=2
bound_of_one_format=1
record=benches/instructions.txt
command -v valgrind > /dev/null || { echo "valgrind is not on this machine"; exit 1; }

binary=$(${CARGO:-cargo} build --locked -p model-gateway-benches --profile bench --bench instructions \
  --message-format=json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\/instructions-[^"]*\)".*/\1/p')
[ -x "$binary" ] || { echo "the benchmark was not built"; exit 1; }

counts=$(mktemp -d)
trap 'rm -r "$counts"' EXIT

{
  echo "# Instructions per frame (streams), per answer, and per request, as benches/instructions.sh --record wrote them:"
  echo "# $(rustc --version | cut -d' ' -f1-2), $(uname -m)$(grep -qw avx2 /proc/cpuinfo && echo ' with AVX2')"
} > "$counts/now"
for case in $("$binary"); do
  env -i "$(command -v valgrind)" --tool=callgrind --collect-atstart=no --toggle-collect='*instructions::measured*' \
    --callgrind-out-file="$counts/out" --log-file="$counts/log" "$binary" "$case" 2> "$counts/turns"
  awk -v case="$case" -v turns="$(cat "$counts/turns")" '
    /^(summary|totals):/ { all = $2 }
    END { if (!all) exit 1; printf "%-32s %d\n", case, all / turns + 0.5 }' "$counts/out" >> "$counts/now" ||
    { echo "$case: nothing was counted"; cat "$counts/log"; exit 1; }
done

if [ "${1:-}" = --record ]; then
  cp "$counts/now" "$record"
  cat "$record"
  exit
fi
diff <(grep '^#' "$record") <(grep '^#' "$counts/now") || echo "another compiler or processor: the figures below differ for that reason too"
awk -v translated="$bound" -v verbatim="$bound_of_one_format" '
  /^#/ { next }
  NR == FNR { before[$1] = $2; next }
  FNR == 1 || !header { if (!header++) printf "%-32s %10s %10s %8s\n", "", "record", "now", "change" }
  !($1 in before) { printf "%-32s %10s %10d   (new: --record)\n", $1, "-", $2; failed = 1; next }
  {
    change = 100 * ($2 - before[$1]) / before[$1]
    worse = change > ($1 ~ /-to-/ ? translated : verbatim)
    printf "%-32s %10d %10d %+7.1f%%%s\n", $1, before[$1], $2, change, worse ? "  too many" : ""
    failed += worse
  }
  END { exit failed > 0 }' "$record" "$counts/now"
