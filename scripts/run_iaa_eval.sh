#!/bin/sh
# The published evaluation of codecs and accelerators, by the names of its own variables: the suite of codecs of
# `ziptier bench` with what they ask for. Results are written below RESULTS_DIR. ZIPTIER names the program,
# ZIPTIER_CORPUS the values: a .zip with the member `samba`, as published, or whatever else `ziptier bench --corpus`
# takes.
set -eu

: "${THREADS_LIST:=4 8 16 32}"
: "${RUN_IAA:=0}" "${RUN_QPL_DYNAMIC:=1}" "${RUN_ZLIB_ACCEL:=0}" "${ZLIB_ACCEL_SO:=}"
: "${SOFTWARE_CODECS:=lz4 qpl}" "${IAA_CODECS:=qpl}" "${ZLIB_ACCEL_CODECS:=zlib_accel}"
: "${BTREE_DURATION_SEC:=5}" "${BTREE_KEY_SPACE:=50000}" "${BTREE_VALUE_BYTES:=128}" "${BTREE_SHARDS:=8}"
: "${BTREE_USE_SILESIA:=1}" "${BTREE_HOT_PCT:=100}"
: "${BTREE_LANDING_BUFFER_BYTES:=512}" "${BTREE_MEASURE_LATENCY:=1}" "${BTREE_LATENCY_SAMPLES_PER_THREAD:=4096}"
: "${BTREE_QPL_JOB_CACHE:=thread}" "${BTREE_ZLIB_STREAM_CACHE:=none}"
: "${RUN_BG_SWEEP:=0}" "${BG_SWEEP_VALUES:=0 1}" "${BTREE_BG_COMPACTION:=0}" "${BTREE_BG_THREADS:=1}"
: "${BTREE_BG_LANDING_HIGH_WATERMARK_PCT:=75}" "${BTREE_BG_CODEC:=all}"
: "${BTREE_BG_SCAN_INTERVAL_US:=1000}" "${BTREE_BG_QUEUE_CAPACITY:=4096}"
: "${LANDING_LIST:=$BTREE_LANDING_BUFFER_BYTES}" "${COLLECT_CPU:=1}"
: "${RESULTS_DIR:=bench-results/iaa_eval}" "${ZIPTIER:=ziptier}" "${ZIPTIER_CORPUS:=}"
: "${TIME_BIN:=/usr/bin/time}" "${RUN_TAIL_LATENCY:=0}"

fail() {
  echo "run_iaa_eval: $1" >&2
  exit 2
}

# What has no counterpart is named when it is asked for; what every run does anyway needs no word.
without() {
  echo "run_iaa_eval: $1 has no counterpart here: $2" >&2
}

comma() {
  echo "$1" | tr -s ' ' ','
}

[ "$BTREE_SHARDS" = 8 ] || without BTREE_SHARDS "the store has one tree that all threads share"
[ "$BTREE_HOT_PCT" = 100 ] ||
  without BTREE_HOT_PCT "ask \`ziptier bench --distribution hot:$BTREE_HOT_PCT:SHARE\` for the keys that you mean"
[ "$BTREE_LATENCY_SAMPLES_PER_THREAD" = 4096 ] ||
  without BTREE_LATENCY_SAMPLES_PER_THREAD "every operation of the window is timed"
[ "$BTREE_BG_SCAN_INTERVAL_US" = 1000 ] || without BTREE_BG_SCAN_INTERVAL_US "full landings wake their packer"
[ "$BTREE_BG_QUEUE_CAPACITY" = 4096 ] || without BTREE_BG_QUEUE_CAPACITY "the writer packs when packers do not keep up"
[ "$TIME_BIN" = /usr/bin/time ] || without TIME_BIN "CPU time and memory come from getrusage"
[ "$RUN_TAIL_LATENCY" = 0 ] || without RUN_TAIL_LATENCY "every row has percentiles of the whole window"
[ "$COLLECT_CPU" = 1 ] || without COLLECT_CPU "CPU time is always collected"
[ -z "${BIN_DIR:-}" ] || without BIN_DIR "name the program in ZIPTIER"
# The published default keeps no stream of zlib between calls; here the row does as the flag says.
[ "$BTREE_QPL_JOB_CACHE" = thread ] || [ "$BTREE_QPL_JOB_CACHE" = pool ] || fail "BTREE_QPL_JOB_CACHE is thread or pool"
[ "$BTREE_QPL_JOB_CACHE" = thread ] || without BTREE_QPL_JOB_CACHE=pool "every thread keeps its own jobs"
case "$BTREE_ZLIB_STREAM_CACHE" in
none | thread) ;;
*) fail "BTREE_ZLIB_STREAM_CACHE is none or thread" ;;
esac
[ "$RUN_ZLIB_ACCEL" = 0 ] || [ -n "$ZLIB_ACCEL_SO" ] || fail "RUN_ZLIB_ACCEL=1 needs ZLIB_ACCEL_SO=.../libzlib-accel.so"
if [ -n "$ZLIB_ACCEL_SO" ]; then export ZLIB_ACCEL_SO; else unset ZLIB_ACCEL_SO; fi
mkdir -p "$RESULTS_DIR"
# Earlier evaluations keep their folders. Their rows were measured on another day.
newline='
'
earlier=$newline$(printf '%s\n' "$RESULTS_DIR"/*/*/summary.tsv)$newline

corpus=$ZIPTIER_CORPUS
if [ "$BTREE_USE_SILESIA" = 0 ]; then
  corpus=${corpus:-json}
elif [ -z "$corpus" ]; then
  fail "name the values in ZIPTIER_CORPUS: SilesiaCorpus/samba.zip:samba, as published; or set BTREE_USE_SILESIA=0"
fi

background=$BTREE_BG_COMPACTION
[ "$RUN_BG_SWEEP" = 0 ] || background=$(comma "$BG_SWEEP_VALUES")
latency=on
[ "$BTREE_MEASURE_LATENCY" = 1 ] || latency=off

# run NAME CODECS ARGUMENTS...: one configuration of the evaluation. A codec of BTREE_BG_CODEC alone compacts in the
# background.
run() {
  name=$1 codecs=$2
  shift 2
  for codec in $codecs; do
    sweep=$background
    if [ "$BTREE_BG_CODEC" != all ] && [ "$BTREE_BG_CODEC" != "$codec" ]; then
      sweep=0
    fi
    case "$codec" in
    lz4) set_codec="--codec lz4" ;;
    qpl) set_codec="--codec deflate --codec-engine qpl $*" ;;
    iaa) set_codec="--codec deflate --codec-engine iaa $*" ;;
    zlib_accel) set_codec="--codec deflate --codec-engine zlib $*" ;;
    *) set_codec="--codec $codec" ;;
    esac
    echo "run=$name codec=$codec" >&2
    # shellcheck disable=SC2086 # the codec's flags are words
    "$ZIPTIER" bench --suite codecs --target store $set_codec --corpus "$corpus" --threads "$(comma "$THREADS_LIST")" \
      --seconds "$BTREE_DURATION_SEC" --keys "$BTREE_KEY_SPACE" --value-bytes "$BTREE_VALUE_BYTES" \
      --landing-bytes "$(comma "$LANDING_LIST")" --background "$sweep" --background-threads "$BTREE_BG_THREADS" \
      --landing-watermark-pct "$BTREE_BG_LANDING_HIGH_WATERMARK_PCT" --latency "$latency" \
      --out "$RESULTS_DIR/$name-$codec" || echo "run_iaa_eval: no rows of $name with $codec, see above" >&2
  done
}

run software_fixed "$SOFTWARE_CODECS" --path software --huffman fixed
if [ "$RUN_IAA" = 1 ]; then
  run qpl_iaa_fixed "$IAA_CODECS" --path hardware --huffman fixed
  [ "$RUN_QPL_DYNAMIC" = 0 ] || run qpl_iaa_dynamic "$IAA_CODECS" --path hardware --huffman dynamic
fi
if [ "$RUN_ZLIB_ACCEL" = 1 ]; then
  cache=thread
  [ "$BTREE_ZLIB_STREAM_CACHE" = thread ] || cache=none
  run zlib_accel "$ZLIB_ACCEL_CODECS" --huffman dynamic --context-cache $cache
fi

# One table of all rows: the columns are the same in every file.
first=yes
for file in "$RESULTS_DIR"/*/*/summary.tsv; do
  case $earlier in *"$newline$file$newline"*) continue ;; esac
  [ -e "$file" ] || continue
  if [ $first = yes ]; then
    cat "$file"
  else
    tail -n +2 "$file"
  fi
  first=no
done >"$RESULTS_DIR/summary.tsv"
[ $first = no ] || fail "nothing was measured"
echo "summary: $RESULTS_DIR/summary.tsv"
