#!/bin/sh
# Makes the first inputs of each target out of the golden files. Inputs that are there already stay.
# Run it from anywhere; it says where a golden file is missing.
set -eu
cd "$(dirname "$0")"

# seed TARGET FILE...: the files become inputs of the target and of its sealed form.
seed() {
    target=$1
    shift
    for name in "$target" "sealed_$target"; do
        [ -f "fuzz_targets/$name.rs" ] || continue
        mkdir -p "corpus/$name"
        cp "$@" "corpus/$name/"
    done
}

# text TARGET TEXT...: each text becomes an input.
text() {
    target=$1
    shift
    mkdir -p "corpus/$target"
    for line in "$@"; do
        printf '%b' "$line" > "corpus/$target/$(printf '%s' "$line" | cksum | cut -d' ' -f1)"
    done
}

crates=../crates
seed journal $crates/device/tests/golden/journal-v1.bin
seed file_map $crates/device/tests/golden/file-map-v1.bin
seed cache_file $crates/device/tests/golden/cache-file-v1.bin
seed cache_lives $crates/device/tests/golden/cache-lives-v1.txt
seed tier_identity $crates/device/tests/golden/tier-identity-v1.bin
seed home $crates/device/tests/golden/database-home-v1.toml
seed home $crates/device/tests/golden/database-home-v2.toml
seed home $crates/device/tests/golden/database-home-cache-v1.toml
seed home $crates/device/tests/golden/database-home-changing-v1.toml
seed names_home $crates/device/tests/golden/names-home-v1.toml
seed tier_profile $crates/device/tests/golden/tier-profile-v1.toml
seed fio_report $crates/device/tests/golden/fio-report.json
seed link_text $crates/device/tests/golden/names-link-v1.txt
seed log $crates/log/tests/golden/sealed.log $crates/log/tests/golden/recycled.log
seed region $crates/pmem/tests/golden/region-v1.bin
seed region_part $crates/pmem/tests/golden/region-part-*.bin
seed slab_header $crates/slab/tests/golden/slab-header-v1.bin
seed slab_slot $crates/slab/tests/golden/slot-v1.bin $crates/slab/tests/golden/slot-packed-v1.bin
seed slab_change $crates/slab/tests/golden/slab-change-v1.bin
seed live_slots $crates/slab/tests/golden/live-slots-v1.bin
seed table $crates/table/tests/golden/*.table
seed batch $crates/engine/tests/golden/batch-v1.bin
seed manifest_edit $crates/engine/tests/golden/manifest-*.bin
seed settings $crates/engine/tests/golden/settings-v1.toml
seed live_stats $crates/engine/tests/golden/live-stats-v3.json

text units '64 MiB' '1.5GB' '250 ms' '0.5 s' '9007199254740993 B' '00112233445566778899aabbccddeeff'
text coding '\003\002\007\007\0200\001\005water'
text driver_name posix direct memory emulated-gp3
text tier /mnt/fast:10GiB:direct slow:64M a:b:1.5TB:emulated-gp3
text host_uri 'thermocline://?tier=/mnt/a:20GiB&tier=home:1TB' 'thermocline://?tier=/a%26b:1MiB&placement=top_levels(2)&move_threads=3'
text load_tsv 'key\tvalue\n\t\nk\\\\t\\\\x00\tb\n'
text load_jsonl '{"key": "k", "value": "v"}\n{"key_base64": "/w==", "value_base64": "AAE="}\n'
text load_deb822 'Package: a\nVersion: 1\nArchitecture: all\n more\n\nPackage: b\nVersion: 2\n'

# Parts of golden files: part TARGET FILE OFFSET BYTES.
part() {
    mkdir -p "corpus/$1"
    tail -c "+$(($3 + 1))" "$2" | head -c "$4" > "corpus/$1/part-$3"
}

part footer $crates/table/tests/golden/plain-v1.table 12288 4096
part block $crates/table/tests/golden/plain-v1.table 0 4096
part filter $crates/table/tests/golden/plain-v1.table 4096 257
part log_headers $crates/log/tests/golden/sealed.log 4096 64
text index_entry '\005\007' '\0200\0100\0220\001\011\011'
text database '\000\005\024\000\006\0376\000\007\0376\011\014\005\005\006\003\005\011\0132' \
    '\015\074\011\011\000\075\001\011\016\007\014\010\000\0377\001\012\007\006' '\011\012\013\014\015'
