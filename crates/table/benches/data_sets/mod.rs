//! Records of three kinds for which a dictionary gains much, little, and what a text gains (MyNVM,
//! figure 17). The benchmark program has them too (`mynvm --figure 17`).

use thermocline_foundation::random::{Random, mix};

pub type Record = (Vec<u8>, Vec<u8>);

/// A piece of a text ends at a line end after so many bytes, and at the latest after so many.
pub const PIECE_BYTES: (usize, usize) = (400, 4000);

/// Readings of an instrument, as an application stores them.
pub fn readings(count: u64) -> Vec<Record> {
    let cities = ["Bern", "Oslo", "Lima", "Turku", "Porto", "Quito", "Accra", "Hanoi"];
    let record = |n: u64| {
        let hash = mix(n);
        let value = format!(
            "{{\"id\":{n},\"station\":{{\"city\":\"{}\",\"altitude_m\":{}}},\
             \"taken_at\":\"2026-{:02}-{:02}T{:02}:{:02}:00Z\",\
             \"temperature_c\":{:.1},\"humidity\":{:.3},\"checked\":{},\"serial\":\"{:012x}\"}}",
            cities[(hash % 8) as usize],
            hash >> 8 & 0xfff,
            1 + (hash >> 20) % 12,
            1 + (hash >> 24) % 28,
            (hash >> 30) % 24,
            (hash >> 36) % 60,
            (hash >> 42 & 0x1ff) as f64 / 10.0 - 20.0,
            (hash >> 50 & 0x3ff) as f64 / 1024.0,
            hash.is_multiple_of(3),
            mix(hash) >> 16,
        );
        (format!("reading/{n:012}").into_bytes(), value.into_bytes())
    };
    (0..count).map(record).collect()
}

/// Nodes of 128 B and links of 8 B, seven to a node (LinkBench): half of a payload is noise.
pub fn graph(nodes: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for node in 0..nodes {
        let mut random = Random::new(mix(node));
        let mut payload = vec![b'.'; 128];
        payload[..16].copy_from_slice(&(1_700_000_000 + node).to_be_bytes().repeat(2));
        random.fill(&mut payload[64..]);
        records.push((format!("n{node:022}").into_bytes(), payload));
        for link in 0..7 {
            let mut payload = [0; 8];
            random.fill(&mut payload[4..]);
            records.push((format!("n{node:022}/{link}").into_bytes(), payload.to_vec()));
        }
    }
    records
}

/// Pieces of a text, at its line ends.
pub fn pieces(text: &[u8]) -> Vec<Record> {
    let (mut records, mut from) = (Vec::new(), 0);
    while from < text.len() {
        let least = (from + PIECE_BYTES.0).min(text.len());
        let line = text[least..].iter().position(|byte| *byte == b'\n');
        let to = line.map_or(text.len(), |at| least + at + 1).min(from + PIECE_BYTES.1);
        let key = format!("text/{:010}", records.len());
        records.push((key.into_bytes(), text[from..to].to_vec()));
        from = to;
    }
    records
}
