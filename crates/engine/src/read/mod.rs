//! Reading: memtables first, then what the layout has, from the newest to the oldest.

pub(crate) mod cursor;
mod get;
mod multi_get;
mod newest;
pub(crate) mod overlay;
pub(crate) mod range;
mod scan;
#[cfg(test)]
mod tests;

use crate::layout::Layout;
use crate::shared::Shared;
use crate::versions::Versions;
use std::sync::Arc;

/// What a reader needs of a store.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    layout: Layout,
}

impl Reader {
    pub fn new(shared: &Arc<Shared>, versions: &Arc<Versions>, layout: &Layout) -> Self {
        let (shared, versions) = (Arc::clone(shared), Arc::clone(versions));
        Self { shared, versions, layout: layout.clone() }
    }
}
