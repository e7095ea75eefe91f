//! What the caller lends a call: bytes, texts, places for answers, options.
//!
//! NULL has a meaning everywhere: with a length of 0 it is no bytes, where bytes are optional it is
//! "none", and else it is an error that names the argument. The functions believe what they cannot
//! check: that a pointer leads to as much as its length says.

use crate::memory;
use crate::status::Failure;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// Options of a newer caller are this long at most, in bytes; what is longer was never set.
const OPTIONS_BYTES_MAX: usize = 1 << 12;

/// The bytes of the argument `name`; NULL with a length of 0 is no bytes.
///
/// # Safety
/// `at` is NULL or leads to `len` bytes that stay as they are for `'a`.
pub unsafe fn bytes<'a>(at: *const c_void, len: usize, name: &str) -> Result<&'a [u8], Failure> {
    // SAFETY: as the caller of this promises.
    Ok(unsafe { optional_bytes(at, len, name) }?.unwrap_or_default())
}

/// The bytes of the argument `name`; NULL with a length of 0 is none.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn optional_bytes<'a>(
    at: *const c_void,
    len: usize,
    name: &str,
) -> Result<Option<&'a [u8]>, Failure> {
    // SAFETY: as the caller of this promises; `u8` needs no alignment.
    unsafe { slice(at.cast(), len, name) }
}

/// `len` things at `at`; NULL with a length of 0 is none.
///
/// # Safety
/// `at` is NULL or leads to `len` of them, aligned, that stay as they are for `'a`.
pub unsafe fn slice<'a, T>(
    at: *const T,
    len: usize,
    name: &str,
) -> Result<Option<&'a [T]>, Failure> {
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::invalid(format!("{name} has a length of {len}, which no memory has")));
    }
    match (at.is_null(), len) {
        (true, 0) => Ok(None),
        (true, _) => Err(Failure::invalid(format!("{name} is NULL and has a length of {len}"))),
        // SAFETY: it is not NULL and no longer than memory can be; the rest is as the caller of
        // this promises.
        (false, _) => Ok(Some(unsafe { std::slice::from_raw_parts(at, len) })),
    }
}

/// The text of the argument `name`, up to its zero; none where it is NULL.
///
/// # Safety
/// `at` is NULL or leads to a text with a zero behind it that stays as it is for `'a`.
pub unsafe fn optional_text<'a>(at: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller of this promises.
    let text = unsafe { CStr::from_ptr(at) }.to_str();
    text.map(Some).map_err(|error| Failure::invalid(format!("{name} is not UTF-8: {error}")))
}

/// The path of the argument `name`: any bytes up to the zero.
///
/// # Safety
/// As for [`optional_text`].
pub unsafe fn path<'a>(at: *const c_char, name: &str) -> Result<&'a Path, Failure> {
    if at.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL; it must be a path")));
    }
    // SAFETY: as the caller of this promises.
    let bytes = unsafe { CStr::from_ptr(at) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// A place of the caller's for an answer.
#[derive(Debug)]
pub struct Place<T>(NonNull<T>);

impl<T> Place<T> {
    /// The place of the argument `name`, which has `nothing` until there is an answer.
    ///
    /// # Safety
    /// `at` is NULL or may be written until the place is dropped.
    pub unsafe fn required(at: *mut T, nothing: T, name: &str) -> Result<Self, Failure> {
        // SAFETY: as the caller of this promises.
        let place = unsafe { Self::optional(at, nothing) };
        place.ok_or_else(|| Failure::invalid(format!("{name} is NULL; the answer needs a place")))
    }

    /// As [`Place::required`], but NULL is no place.
    ///
    /// # Safety
    /// As for [`Place::required`].
    pub unsafe fn optional(at: *mut T, nothing: T) -> Option<Self> {
        let place = Self(NonNull::new(at)?);
        place.put(nothing);
        Some(place)
    }

    /// Writes the answer.
    pub fn set(self, answer: T) {
        self.put(answer);
    }

    fn put(&self, answer: T) {
        // SAFETY: it is not NULL, and `required` or `optional` was promised that it may be written.
        unsafe { self.0.write(answer) };
    }
}

/// The places for a value and its length. Either may be NULL, for a caller that needs less.
#[derive(Debug)]
pub struct ValuePlace {
    value: Option<Place<*mut c_char>>,
    len: Option<Place<usize>>,
}

impl ValuePlace {
    /// Both have nothing until there is an answer: NULL and 0.
    ///
    /// # Safety
    /// Each is NULL or may be written until the place is dropped.
    pub unsafe fn new(value: *mut *mut c_char, len: *mut usize) -> Self {
        // SAFETY: as the caller of this promises.
        let (value, len) =
            unsafe { (Place::optional(value, std::ptr::null_mut()), Place::optional(len, 0)) };
        Self { value, len }
    }

    /// Gives the caller a copy of `bytes`.
    pub fn set(self, bytes: &[u8]) {
        if let Some(value) = self.value {
            value.set(memory::buffer(bytes));
        }
        if let Some(len) = self.len {
            len.set(bytes.len());
        }
    }

    /// Gives the caller what a look-up found; nothing is a failure without a text.
    pub fn set_found(self, found: Option<&[u8]>) -> Result<(), Failure> {
        self.set(found.ok_or_else(Failure::not_found)?);
        Ok(())
    }
}

/// A struct of options.
///
/// # Safety
/// It begins with its size as a `usize`; all its bytes count, and any are valid.
pub unsafe trait Options: Copy {}

/// The options at `at`; those that an older caller does not know, and all where it is NULL, are 0.
///
/// # Safety
/// `at` is NULL or leads to a `usize`, and to as many bytes as that says.
pub unsafe fn options<T: Options>(at: *const T) -> Result<T, Failure> {
    let mut options = MaybeUninit::<T>::zeroed();
    if !at.is_null() {
        // SAFETY: as the caller of this promises.
        let size = unsafe { at.cast::<usize>().read_unaligned() };
        if !(size_of::<usize>()..=OPTIONS_BYTES_MAX).contains(&size) {
            return Err(Failure::invalid(format!(
                "the options begin with a size of {size}; it must be that of their struct (sizeof)"
            )));
        }
        // SAFETY: as the caller of this promises.
        let given = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) };
        let (known, unknown) = given.split_at(size.min(size_of::<T>()));
        if unknown.iter().any(|byte| *byte != 0) {
            return Err(Failure::invalid(
                "the options say what this version of the library does not know: leave it 0, or \
                 use a newer one",
            ));
        }
        // SAFETY: `known` has at most the bytes of `options`, which lies elsewhere.
        unsafe { options.as_mut_ptr().cast::<u8>().copy_from(known.as_ptr(), known.len()) };
    }
    // SAFETY: `Options` promises that any bytes are valid, and zeroes stand where none were copied.
    Ok(unsafe { options.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;
    use std::ptr::null;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Two {
        size: usize,
        first: u64,
        second: u64,
    }
    // SAFETY: it begins with its size; integers take any bytes and leave no gap.
    unsafe impl Options for Two {}

    fn read(words: &[u64]) -> Result<(u64, u64), Failure> {
        // SAFETY: the first word is the size in bytes, in all cases but those of wrong sizes, which
        // are not believed.
        unsafe { options::<Two>(words.as_ptr().cast()) }.map(|it| (it.first, it.second))
    }

    #[test]
    fn options_of_older_and_newer_callers_are_read() {
        assert_eq!(read(&[24, 1, 2]).unwrap(), (1, 2));
        assert_eq!(read(&[16, 1]).unwrap(), (1, 0), "an older caller has one field");
        assert_eq!(read(&[8]).unwrap(), (0, 0));
        assert_eq!(read(&[32, 1, 2, 0]).unwrap(), (1, 2), "a newer caller asks for nothing new");
        // SAFETY: NULL is allowed.
        let none = unsafe { options::<Two>(null()) }.unwrap();
        assert_eq!((none.size, none.first, none.second), (0, 0, 0));
    }

    #[test]
    fn options_that_cannot_be_are_refused() {
        for words in [&[32, 1, 2, 3][..], &[0, 1, 2], &[7, 1, 2], &[u64::MAX, 1, 2]] {
            let failure = read(words).unwrap_err();
            assert_eq!(failure.status, Status::THERMOCLINE_INVALID, "{words:?}");
        }
    }

    #[test]
    fn null_is_no_bytes_and_never_some() {
        // SAFETY: NULL and an array are what the functions take.
        unsafe {
            assert_eq!(bytes(null(), 0, "the key").unwrap(), b"");
            assert_eq!(optional_bytes(null(), 0, "the key").unwrap(), None);
            let some = b"ab".as_ptr().cast();
            assert_eq!(optional_bytes(some, 0, "the key").unwrap(), Some(&b""[..]));
            assert_eq!(optional_bytes(some, 2, "the key").unwrap(), Some(&b"ab"[..]));
            let text = bytes(null(), 3, "the key").unwrap_err().text.unwrap();
            assert_eq!(text, "the key is NULL and has a length of 3");
            assert!(bytes(some, usize::MAX, "the key").is_err());
        }
    }
}
