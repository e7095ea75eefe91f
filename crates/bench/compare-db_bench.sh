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
benchmarks=${BENCHMARKS:-fillrandom,overwrite,waitforcompaction,readrandom,seekrandom}
bench=${BENCH:-${CARGO_TARGET_DIR:-target}/release/thermocline-db_bench}
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
    ${NICE:+nice -n "$NICE"} "$bench" --db "$work/db" --num "$num" --reads "$reads" --value-size "$value" --key-size 24 \
        --threads "$threads" --memory "${memory}MiB" --durability "$durability" \
        --compression "$compression" --seed "$1" --benchmarks "$benchmarks" --json \
        > "$results/ours.$1"
    sed -E 's/.*"name":"([a-z]+)".*"ops_per_s":([0-9.]+).*"p99_us":([0-9.]+).*"cpu_us_per_op":([0-9.]+).*"peak_rss_bytes":([0-9]+).*/\1 \2 \3 \4 \5/' \
        "$results/ours.$1" | sed "s/^/ours /" >> "$results/rows"
}

# Priority alike too: NICE, such as -10, for a machine that is not idle. Memory: a quarter for three write buffers and the rest for the block cache with indexes and
# filters in it; Thermocline divides its memory alike.
theirs() {
    fresh
    local sync=0
    if [ "$durability" = sync ]; then sync=1; fi
    rm -f "$results/pipe"
    mkfifo "$results/pipe"
    ${NICE:+nice -n "$NICE"} db_bench --db="$work/db" --num="$num" --writes=$((num / threads)) \
        --reads=$((reads / threads)) --value_size="$value" --key_size=24 --threads="$threads" \
        --cache_size=$((memory * 3 / 4 << 20)) --write_buffer_size=$(((memory << 20) / 12)) \
        --max_write_buffer_number=3 --cache_index_and_filter_blocks=true \
        --pin_l0_filter_and_index_blocks_in_cache=true --bloom_bits=10 --block_size=4096 \
        --level_compaction_dynamic_level_bytes=true --max_background_jobs=4 --subcompactions=2 \
        --bytes_per_sync=1048576 --compression_type="$compression" --compression_ratio=0.5 \
        --sync=$sync --seek_nexts=10 --seed="$1" --histogram=1 --open_files=-1 \
        --benchmarks="${benchmarks//waitforcompaction/waitforcompaction,acquireload},waitforcompaction" \
        ${ROCKS:-} > "$results/pipe" 2> "$results/errors.$1" &
    local pid=$! name= ops= ticks=0 before=0 peak=0 per=0
    # The processor time of the whole process is read when a benchmark has reported. A wait reports
    # nothing, so a short benchmark of no interest follows it; the last one keeps the process there.
    while read -r line; do
        echo "$line" >> "$results/theirs.$1"
        case $line in
            *micros/op*ops/sec*)
                name=${line%% *}
                ops=$(sed -E 's/.* ([0-9]+) ops\/sec.*/\1/' <<< "$line") ;;
            Percentiles:*)
                if [ -r /proc/$pid/stat ]; then
                    ticks=$(awk '{ print $14 + $15 }' /proc/$pid/stat || echo "$ticks")
                    peak=$(awk '/^VmHWM/ { print $2 * 1024 }' /proc/$pid/status || echo "$peak")
                fi
                local count=$reads
                case $name in fill* | overwrite) count=$num ;; esac
                per=$(((ticks - before) * 10000 * 100 / count))
                before=$ticks
                p99=$(sed -E 's/.*P99: ([0-9.]+).*/\1/' <<< "$line")
                echo "theirs $name $ops $p99 $((per / 100)).$(printf %02d $((per % 100))) $peak" \
                    >> "$results/rows" ;;
        esac
    done < "$results/pipe"
    wait $pid
}

for round in $(seq 1 "$rounds"); do
    if [ $((round % 2)) = 1 ]; then ours "$round"; theirs "$round"; else theirs "$round"; ours "$round"; fi
done

# Medians over rounds. Processor time includes background work, but for what goes on in
# waitforcompaction, on both sides.
awk '
    function median(table, key, count,    i, j, t, list) {
        for (i = 1; i <= count; i++) list[i] = table[key, i]
        for (i = 1; i <= count; i++) for (j = i + 1; j <= count; j++)
            if (list[j] < list[i]) { t = list[i]; list[i] = list[j]; list[j] = t }
        return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
    }
    $2 == "waitforcompaction" || $2 == "acquireload" { next }
    {
        key = $1 " " $2; n = ++seen[key]
        speed[key, n] = $3; tail[key, n] = $4; cpu[key, n] = $5
        if ($6 > peak[$1]) peak[$1] = $6
        if (!($2 in known)) { known[$2] = 1; names[++rows] = $2 }
    }
    END {
        printf "%-17s %10s %10s %6s %9s %9s %6s %9s %9s\n", "", "op/s", "op/s", "", "p99 us", "p99 us", "cpu us", "cpu us", ""
        printf "%-17s %10s %10s %6s %9s %9s %6s %9s %9s\n", "benchmark", "ours", "RocksDB", "ratio", "ours", "RocksDB", "ours", "RocksDB", "cpu ratio"
        for (r = 1; r <= rows; r++) {
            a = "ours " names[r]; b = "theirs " names[r]
            x = median(speed, a, seen[a]); y = median(speed, b, seen[b])
            u = median(cpu, a, seen[a]); v = median(cpu, b, seen[b])
            printf "%-17s %10.0f %10.0f %6.2f %9.1f %9.1f %6.2f %9.2f %9.2f\n", names[r], x, y, y ? x / y : 0,
                median(tail, a, seen[a]), median(tail, b, seen[b]), u, v, u ? v / u : 0
        }
        printf "most memory resident: ours %d MiB, RocksDB %d MiB\n", peak["ours"] / 1048576, peak["theirs"] / 1048576
    }' "$results/rows"
echo "$memory MiB given to each; $num keys of 24 B, values of $value B, $threads threads, $durability," \
    "compression $compression, $rounds rounds, in $dir"
if [ -n "${KEEP:-}" ]; then cp -r "$results" "$KEEP"; fi
