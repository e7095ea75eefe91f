//! Buffers that the caller gets and gives back to [`thermocline_free`].
//!
//! They come from the C library's allocator, because that knows how long each is: the caller gives
//! back a pointer alone. Behind the bytes stands a zero, so that texts are C's and a buffer of no
//! bytes has an address.

use std::alloc::Layout;
#[cfg(test)]
use std::ffi::CStr;
use std::ffi::{c_char, c_void};

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(at: *mut c_void);
}

/// A buffer with a copy of `bytes`, which is the caller's from here on. Without memory the process
/// ends, as it does everywhere in the store.
pub fn buffer(bytes: &[u8]) -> *mut c_char {
    // A slice has at most `isize::MAX` bytes, so one more is a number.
    let len = bytes.len() + 1;
    // SAFETY: `malloc` takes any length.
    let at = unsafe { malloc(len) }.cast::<u8>();
    if at.is_null() {
        std::alloc::handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()));
    }
    // SAFETY: the memory is new, so it overlaps with nothing, and has room for the bytes and one
    // more.
    unsafe {
        at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        at.add(bytes.len()).write(0);
    }
    at.cast()
}

/// A line of text as a buffer: what would end it early, or the line, is a space.
pub fn line(text: &str) -> *mut c_char {
    let text: String = text.chars().map(|c| if c == '\0' || c == '\n' { ' ' } else { c }).collect();
    buffer(text.as_bytes())
}

/// Gives back a buffer or a text that a function of this library gave out. NULL is none.
///
/// `buffer` must come from this library and be given back once. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermocline_free(buffer: *mut c_void) {
    // SAFETY: the header asks for a buffer that `malloc` gave above, once, or NULL.
    unsafe { free(buffer) };
}

/// The text of an answer, which it gives back.
#[cfg(test)]
pub fn take_text(text: *mut c_char) -> String {
    assert!(!text.is_null(), "there is no text");
    // SAFETY: the library gave the text, and it is given back once.
    unsafe {
        let owned = CStr::from_ptr(text).to_str().unwrap().to_owned();
        thermocline_free(text.cast());
        owned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_that_no_zero_ends() {
        assert_eq!(take_text(line("one\0two\nthree")), "one two three");
    }

    #[test]
    fn a_buffer_of_no_bytes_has_an_address_and_null_may_be_freed() {
        let at = buffer(b"");
        assert!(!at.is_null());
        // SAFETY: `buffer` gave it; NULL is allowed.
        unsafe {
            assert_eq!(at.read(), 0);
            thermocline_free(at.cast());
            thermocline_free(std::ptr::null_mut());
        }
    }
}
