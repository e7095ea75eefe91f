//! The openings of a database that filled a cache: what tells its files from those of a future that
//! was abandoned. See docs/formats/cache.md.
//!
//! ```text
//!   restored here ──> generation 8, life a ── 9, b ──────────── 10, c      (this list: a b c)
//!              '──> generation 8 .. 9, life x: abandoned       a file of life x counts nowhere
//! ```
//! Generations and numbers of files repeat after a restore of older files; a life, drawn at
//! random at each opening, does not. The list is a text beside `DATABASE`, and durable before the
//! first file of its newest life is sealed.
//!
//! Invariants:
//! 1. A file counts if the life that sealed it is on the list with its generation, and ended with
//!    numbers that are not below those that the file was sealed with. A life ends where the next
//!    begins: what came later belongs to a future that is not this one's.
//! 2. A list that is not whole is none: then no file counts.
//! 3. The database names the newest life of its past, in a file that every copy of it has: a list
//!    without that life is of another past, and what is behind it of another future.
//! 4. The newest [`LIVES_MAX`] lives are kept.

use super::sealed::Seal;
use std::fmt::Write as _;
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::{DatabaseId, FileNumber, Place, Planted, planted};

/// The name of the list beside `DATABASE`.
pub const FILE_NAME: &str = "cache-lives.txt";

/// Lives that are kept.
pub const LIVES_MAX: usize = 256;

const HEADING: &str = "thermocline cache lives, version 1\n";
const LAST_LINE: &str = "checksum ";

/// An opening that fills a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLife {
    /// Its generation.
    pub generation: u64,
    /// Drawn at random.
    pub life: u64,
    /// Numbers below were or may have been given out before it.
    pub numbers_below: FileNumber,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheLives {
    lives: Vec<CacheLife>,
}

/// The text has no place in a file.
fn place(database: DatabaseId) -> Place {
    Place { database, file: FileNumber(0), offset: 0 }
}

impl CacheLives {
    /// The list in `text`; an empty one where it is not whole or of another database.
    pub fn parse(text: &str, database: DatabaseId) -> Self {
        Self::try_parse(text, database).unwrap_or_default()
    }

    fn try_parse(text: &str, database: DatabaseId) -> Option<Self> {
        let (covered, sum) = text.strip_suffix('\n')?.rsplit_once(LAST_LINE)?;
        let is_whole = sum.len() == 8
            && u32::from_str_radix(sum, 16).ok()? == checksum(&place(database), covered.as_bytes());
        let lines = covered.strip_prefix(HEADING).filter(|_| is_whole)?;
        let lives = lines.lines().map(|line| {
            let mut words = line.split(' ');
            let generation = words.next()?.parse().ok()?;
            let life = u64::from_str_radix(words.next()?, 16).ok()?;
            let numbers_below = FileNumber(words.next()?.parse().ok()?);
            words.next().is_none().then_some(CacheLife { generation, life, numbers_below })
        });
        let lives = lives.collect::<Option<Vec<_>>>()?;
        let ascends = |pair: &[CacheLife]| pair[0].generation < pair[1].generation;
        (lives.len() <= LIVES_MAX && lives.windows(2).all(ascends)).then_some(Self { lives })
    }

    /// The text of the list.
    pub fn text(&self, database: DatabaseId) -> String {
        let mut text = HEADING.to_owned();
        for CacheLife { generation, life, numbers_below } in &self.lives {
            // A string takes all that is written.
            let _ = writeln!(text, "{generation} {life:016x} {}", numbers_below.0);
        }
        let sum = checksum(&place(database), text.as_bytes());
        let _ = writeln!(text, "{LAST_LINE}{sum:08x}");
        text
    }

    /// The lives, the oldest first.
    pub fn lives(&self) -> &[CacheLife] {
        &self.lives
    }

    /// Keeps the lives up to `last`, that of the opening that the database says had a cache last.
    /// Those behind are of a future that was abandoned. Where the list does not have it, it is that
    /// of another past: a restore left it in place.
    pub fn end_with(&mut self, last: Option<u64>) {
        let at = self.lives.iter().rposition(|life| Some(life.life) == last);
        self.lives.truncate(at.map_or(0, |at| at + 1));
    }

    /// Begins `life`, with which all others end. Those of its generation and later ones are of a
    /// future that was abandoned.
    pub fn begin(&mut self, life: CacheLife) {
        self.lives.retain(|other| other.generation < life.generation);
        self.lives.push(life);
        let surplus = self.lives.len().saturating_sub(LIVES_MAX);
        self.lives.drain(..surplus);
    }

    /// A file with this seal is of a life that has ended, and of what this database came from.
    pub fn count(&self, seal: &Seal) -> bool {
        if planted(Planted::NewerCacheAdopted) {
            return true;
        }
        let mut pairs = self.lives.windows(2);
        pairs.any(|pair| {
            (pair[0].generation, pair[0].life) == (seal.generation, seal.life)
                && seal.numbers_below <= pair[1].numbers_below
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::InstanceId;

    const DATABASE: DatabaseId = DatabaseId([3; 16]);

    fn life(generation: u64, life: u64, numbers_below: u64) -> CacheLife {
        CacheLife { generation, life, numbers_below: FileNumber(numbers_below) }
    }

    fn seal(generation: u64, life: u64, numbers_below: u64) -> Seal {
        let (instance, numbers_below) = (InstanceId([1; 16]), FileNumber(numbers_below));
        Seal { instance, generation, life, numbers_below }
    }

    #[test]
    fn files_of_lives_that_ended_count_and_those_of_others_do_not() {
        let mut lives = CacheLives::default();
        for life in [life(3, 0xA, 10), life(5, 0xB, 100), life(9, 0xC, 200)] {
            lives.begin(life);
        }
        assert!(lives.count(&seal(3, 0xA, 50)) && lives.count(&seal(3, 0xA, 100)));
        assert!(!lives.count(&seal(3, 0xA, 101)), "sealed after a copy was taken of it");
        assert!(!lives.count(&seal(3, 0xB, 50)) && !lives.count(&seal(4, 0xA, 50)));
        assert!(lives.count(&seal(5, 0xB, 200)));
        assert!(!lives.count(&seal(9, 0xC, 200)), "the present one");
        // Older files come back: the others were a future.
        lives.begin(life(5, 0xD, 90));
        assert_eq!(lives.lives(), [life(3, 0xA, 10), life(5, 0xD, 90)]);
        assert!(!lives.count(&seal(5, 0xB, 100)) && lives.count(&seal(3, 0xA, 90)));
    }

    #[test]
    fn a_list_that_a_restore_left_counts_up_to_the_life_that_the_database_names() {
        let mut list = CacheLives::default();
        let [old, left, new] = [life(3, 0xA, 10), life(5, 0xB, 100), life(9, 0xC, 200)];
        for life in [old, left, new] {
            list.begin(life);
        }
        let ended_with = |last| {
            let mut list = list.clone();
            list.end_with(last);
            list.lives().to_vec()
        };
        assert_eq!(ended_with(Some(0xC)), [old, left, new]);
        assert_eq!(ended_with(Some(0xB)), [old, left]);
        assert_eq!(ended_with(Some(0xD)), [], "it has lived elsewhere since");
        assert_eq!(ended_with(None), [], "it never had a cache");
    }

    #[test]
    fn a_list_is_read_back_whole_or_not_at_all() {
        let mut lives = CacheLives::default();
        (0..LIVES_MAX as u64 + 7).for_each(|number| lives.begin(life(2 * number, number, 10)));
        assert_eq!(lives.lives().len(), LIVES_MAX);
        let text = lives.text(DATABASE);
        assert_eq!(CacheLives::parse(&text, DATABASE), lives);
        let none = CacheLives::default();
        assert_eq!(CacheLives::parse(&none.text(DATABASE), DATABASE), none);
        assert_eq!(CacheLives::parse(&text, DatabaseId([4; 16])), none, "another database's");
        for end in (0..text.len()).step_by(97) {
            assert_eq!(CacheLives::parse(&text[..end], DATABASE), none);
        }
        assert_eq!(CacheLives::parse(&text.replacen("14 ", "15 ", 1), DATABASE), none);
    }
}
