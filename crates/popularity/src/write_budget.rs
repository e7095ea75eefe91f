//! How much may be written to a tier that wears out.
//!
//! Endurance is rated in drive writes per day (DWPD): how often a day the whole capacity may be
//! written for the rated life. Dense flash stands 0.1 to 0.3; the paper's third goal is to live
//! with that (§3). The budget is a token bucket: bytes flow in at `capacity * dwpd` a day, up to a
//! burst, and background writes wait until there are enough.
//!
//! Invariants:
//! 1. Over any time `t`, what was allowed is at most `burst + rate * t`, and the last amount.
//! 2. An amount above the burst is allowed when the bucket is full, and leaves a debt.
//! 3. A clock that stands still or goes back adds nothing.
//! 4. Bytes that are promised to one job are allowed to no other.
//!
//! It is for background work that can wait. Writes of clients are paced elsewhere: a full fast tier
//! and no budget must slow them down, not refuse them.

const DAY_NS: f64 = 86_400e9;

/// See the header. One owner; time is handed in.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    bytes_per_ns: f64,
    burst_bytes: f64,
    tokens: f64,
    filled_at_ns: u64,
    /// Promised to jobs that have begun to write and are not yet done.
    promised_bytes: f64,
    /// The total of bytes written that was seen last.
    seen_bytes: u64,
}

impl WriteBudget {
    /// A budget of `write_budget_dwpd` drive writes a day for a tier of `capacity_bytes`, full at
    /// first. The burst is what flows in an hour.
    pub fn new(capacity_bytes: u64, write_budget_dwpd: f64, now_ns: u64) -> Self {
        let bytes_per_day = capacity_bytes as f64 * write_budget_dwpd.max(0.0);
        Self::with_burst(capacity_bytes, write_budget_dwpd, bytes_per_day / 24.0, now_ns)
    }

    /// The same with another burst, in bytes.
    pub fn with_burst(
        capacity_bytes: u64,
        write_budget_dwpd: f64,
        burst_bytes: f64,
        now_ns: u64,
    ) -> Self {
        let bytes_per_ns = capacity_bytes as f64 * write_budget_dwpd.max(0.0) / DAY_NS;
        let burst_bytes = burst_bytes.max(0.0);
        Self {
            bytes_per_ns,
            burst_bytes,
            tokens: burst_bytes,
            filled_at_ns: now_ns,
            promised_bytes: 0.0,
            seen_bytes: 0,
        }
    }

    /// The same with nothing to spend yet: for what has had its burst.
    #[must_use]
    pub fn emptied(self) -> Self {
        Self { tokens: 0.0, ..self }
    }

    /// Whether `bytes` may be written now, beside what is promised.
    pub fn allows(&self, bytes: u64, now_ns: u64) -> bool {
        self.left_at(now_ns) >= self.needed(bytes)
    }

    /// Nanoseconds until [`WriteBudget::allows`] says yes, if nothing is written; all of time
    /// without a budget, or where promises must be kept first.
    pub fn wait_ns(&self, bytes: u64, now_ns: u64) -> u64 {
        let missing = self.needed(bytes) - self.left_at(now_ns);
        let is_reached = self.needed(bytes) <= self.burst_bytes - self.promised_bytes;
        match missing <= 0.0 {
            true => 0,
            false if is_reached => (missing / self.bytes_per_ns).ceil() as u64,
            false => u64::MAX,
        }
    }

    /// How short the budget is: 0 where a burst may be written, 1 where nothing may. Promises do
    /// not count, for a part of them has been written and spent.
    pub fn scarcity(&self, now_ns: u64) -> f64 {
        let left =
            if self.burst_bytes > 0.0 { self.tokens_at(now_ns) / self.burst_bytes } else { 0.0 };
        1.0 - left.clamp(0.0, 1.0)
    }

    /// Promises so many bytes to a job that is about to write. The job releases them when it is
    /// done, or when it writes nothing after all.
    pub fn promise(&mut self, bytes: u64) {
        self.promised_bytes += bytes as f64;
    }

    /// Bytes that are promised.
    pub fn promised_bytes(&self) -> u64 {
        self.promised_bytes as u64
    }

    /// Takes a promise back.
    pub fn release(&mut self, bytes: u64) {
        self.promised_bytes = (self.promised_bytes - bytes as f64).max(0.0);
    }

    /// Takes the total of bytes that all jobs wrote since the store was opened, and spends what is
    /// new of it.
    pub fn observe(&mut self, total_bytes: u64, now_ns: u64) {
        self.spend(total_bytes.saturating_sub(self.seen_bytes), now_ns);
        self.seen_bytes = self.seen_bytes.max(total_bytes);
    }

    /// Bytes were written, allowed or not.
    pub fn spend(&mut self, bytes: u64, now_ns: u64) {
        self.tokens = self.tokens_at(now_ns) - bytes as f64;
        self.filled_at_ns = self.filled_at_ns.max(now_ns);
    }

    /// Bytes that may be written now; below 0 a debt.
    pub fn tokens_at(&self, now_ns: u64) -> f64 {
        let passed = now_ns.saturating_sub(self.filled_at_ns) as f64;
        (self.tokens + passed * self.bytes_per_ns).min(self.burst_bytes)
    }

    fn left_at(&self, now_ns: u64) -> f64 {
        self.tokens_at(now_ns) - self.promised_bytes
    }

    fn needed(&self, bytes: u64) -> f64 {
        (bytes as f64).min(self.burst_bytes)
    }
}

/// The life to expect of a tier rated for `rated_bytes` of writes in all, if it goes on being
/// written as in the `elapsed_ns` in which `written_bytes` were. From now on; `None` if nothing was
/// written, and 0 if the rating is used up.
pub fn lifetime_ns(written_bytes: u64, elapsed_ns: u64, rated_bytes: u64) -> Option<u64> {
    let left = u128::from(rated_bytes.saturating_sub(written_bytes));
    let lifetime = (left * u128::from(elapsed_ns)).checked_div(u128::from(written_bytes))?;
    Some(u64::try_from(lifetime).unwrap_or(u64::MAX))
}
