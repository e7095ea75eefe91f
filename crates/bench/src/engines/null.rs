//! The engine that does nothing: what is measured with it is the harness itself.
//!
//! A look-up finds an empty value and is not checked, a scan visits nothing, so the figures are the
//! cost of making operations, keys and values, of two looks at the clock and of the histogram.

use crate::Outcome;
use crate::store::{EngineKind, Needs, OpenOptions, Store, TierTraffic, Visitor};

/// See the module's header.
#[derive(Clone, Copy, Debug)]
pub struct Null;

/// The one null engine.
pub static NULL: Null = Null;

impl EngineKind for Null {
    fn name(&self) -> &str {
        "null"
    }

    fn about(&self) -> String {
        "does nothing; shows what the harness itself costs".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneOrMore
    }

    fn describe(&self, _: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        Ok(Box::new(NullStore { tiers: options.tiers.len() }))
    }
}

#[derive(Debug)]
struct NullStore {
    tiers: usize,
}

impl Store for NullStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        std::hint::black_box(key);
        value.clear();
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        std::hint::black_box((key, value));
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        std::hint::black_box(key);
        Ok(())
    }

    fn scan(&self, from: &[u8], _: u64, _: &mut Visitor<'_>) -> Outcome<u64> {
        std::hint::black_box(from);
        Ok(0)
    }

    fn sync(&self) -> Outcome<()> {
        Ok(())
    }

    fn settle(&self) -> Outcome<()> {
        Ok(())
    }

    fn tier_traffic(&self) -> Option<Vec<TierTraffic>> {
        Some(vec![TierTraffic::default(); self.tiers])
    }

    fn keeps(&self) -> bool {
        false
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}
