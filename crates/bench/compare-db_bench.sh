#!/bin/bash
# Runs the same workloads on Thermocline and on RocksDB (Debian's db_bench), alternating, and prints
# medians and their ratio. See docs/benchmarks.md for what is held equal.
#
#   compare-db_bench.sh DIR          DIR: a directory on the device under test; it is filled and
#                                    emptied again
# Environment: NUM keys (1000000), VALUE bytes (1000), THREADS (2), MEMORY in MiB (256),
#   ROUNDS (3), DURABILITY buffered|sync, COMPRESSION none|lz4, READS (NUM), BENCH the binary,
#   BENCHMARKS a comma-separated list, ROCKS further options of db_bench.
set -euo pipefail

dir=${1:?a directory on the device under test}
num=${NUM:-1000000} value=${VALUE:-1000} threads=${THREADS:-2} memory=${MEMORY:-256}
rounds=${ROUNDS:-3} durability=${DURABILITY:-buffered} compression=${COMPRESSION:-none}
reads=${READS:-$num}
benchmarks=${BENCHMARKS:-fillrandom,waitforcompaction,overwrite,waitforcompaction,readrandom,seekrandom}
bench=${BENCH:-${CARGO_TARGET_DIR:-target}/release/thermocline-bench}
work=$dir/compare-$$
results=$(mktemp -d)
trap 'rm -rf "$work" "$results"' EXIT
mkdir -p "$work"

# Page cache: both sides use it alike, and begin without anything of theirs in it where the
# system lets us (root).
fresh() {
    rm -rf "$work/db"
    sync "$work"
    if [ -w /proc/sys/vm/drop_caches ]; then echo 1 > /proc/sys/vm/drop_caches; fi
}

ours() {
    fresh
    "$bench" --db "$work/db" --num "$num" --reads "$reads" --value-size "$value" --key-size 24 \
        --threads "$threads" --memory "${memory}MiB" --durability "$durability" \
        --compression "$compression" --seed "$1" --benchmarks "$benchmarks" --json \
        > "$results/ours.$1"
    sed -E 's/.*"name":"([a-z]+)".*"ops_per_s":([0-9.]+).*"p99_us":([0-9.]+).*"cpu_us_per_op":([0-9.]+).*"peak_rss_bytes":([0-9]+).*/\1 \2 \3 \4 \5/' \
        "$results/ours.$1" | sed "s/^/ours /" >> "$results/rows"
}

# Memory: a quarter for three write buffers and the rest for the block cache with indexes and
# filters in it; Thermocline divides its memory alike.
theirs() {
    fresh
    local sync=0
    if [ "$durability" = sync ]; then sync=1; fi
    /usr/bin/time -f 'theirs cpu_and_rss %U %S %M' -o "$results/time.$1" \
    db_bench --db="$work/db" --num="$num" --writes=$((num / threads)) \
        --reads=$((reads / threads)) --value_size="$value" --key_size=24 --threads="$threads" \
        --cache_size=$((memory * 3 / 4 << 20)) --write_buffer_size=$(((memory << 20) / 12)) \
        --max_write_buffer_number=3 --cache_index_and_filter_blocks=true \
        --pin_l0_filter_and_index_blocks_in_cache=true --bloom_bits=10 --block_size=4096 \
        --level_compaction_dynamic_level_bytes=true --max_background_jobs=4 --subcompactions=2 \
        --bytes_per_sync=1048576 --compression_type="$compression" --compression_ratio=0.5 \
        --sync=$sync --seek_nexts=10 --seed="$1" --histogram=1 --open_files=-1 \
        --benchmarks="$benchmarks" ${ROCKS:-} > "$results/theirs.$1" 2>&1
    awk '/^[a-z]+ +:.*micros\/op/ { name = $1; for (i = 1; i < NF; i++) if ($(i + 1) ~ /^ops\/sec/) ops = $i }
         /^Percentiles:/ { print "theirs", name, ops, $7, 0, 0 }' "$results/theirs.$1" \
        | sed 's/:$//' >> "$results/rows"
    cat "$results/time.$1" >> "$results/times"
}

for round in $(seq 1 "$rounds"); do
    if [ $((round % 2)) = 1 ]; then ours "$round"; theirs "$round"; else theirs "$round"; ours "$round"; fi
done

# The n-th run of a name in a round is a row of its own; the median over rounds is what counts.
awk -v rounds="$rounds" '
    { key = $1 " " $2; n = ++seen[key]; values[key, n] = $3; tails[key, n] = $4
      if (!($2 in order)) { order[$2] = ++rows; names[rows] = $2 } }
    function median(table, key, count,    i, j, t, list) {
        for (i = 1; i <= count; i++) list[i] = table[key, i]
        for (i = 1; i <= count; i++) for (j = i + 1; j <= count; j++)
            if (list[j] < list[i]) { t = list[i]; list[i] = list[j]; list[j] = t }
        return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2 }
    END {
        printf "%-18s %12s %12s %7s %12s %12s\n", "benchmark", "ours op/s", "RocksDB op/s", "ratio", "ours p99 us", "RocksDB p99"
        for (r = 1; r <= rows; r++) {
            name = names[r]
            if (name == "waitforcompaction") continue
            a = median(values, "ours " name, seen["ours " name]); b = median(values, "theirs " name, seen["theirs " name])
            c = median(tails, "ours " name, seen["ours " name]); d = median(tails, "theirs " name, seen["theirs " name])
            printf "%-18s %12.0f %12.0f %7.2f %12.1f %12.1f\n", name, a, b, b ? a / b : 0, c, d }
    }' "$results/rows"
echo "memory: ours peaked at $(awk '$1 == "ours" && $6 > m { m = $6 } END { printf "%d", m / 1048576 }' "$results/rows") MiB," \
    "RocksDB at $(awk '$5 > m { m = $5 } END { printf "%d", m / 1024 }' "$results/times") MiB; $memory MiB given"
if [ -n "${KEEP:-}" ]; then cp -r "$results" "$KEEP"; fi
