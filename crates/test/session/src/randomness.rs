//! The random numbers of a server's session.

use std::fmt;

use longhaul_tcp::proof::TcpCookie;
use longhaul_terms::MAX_STREAMS;
use longhaul_wire::probe::Cookie;

/// Unpredictable bytes for one session, from the operating system's random source.
#[derive(Clone)]
pub struct Randomness(pub [u8; Self::BYTES]);

impl Randomness {
    /// Cookie, nonce and the two words of the token, and a challenge for each stream, 8 bytes each.
    pub const BYTES: usize = 8 * (4 + MAX_STREAMS as usize);

    fn word(&self, index: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[8 * index..8 * index + 8]);
        u64::from_ne_bytes(word)
    }

    pub(crate) fn cookie(&self) -> Cookie {
        Cookie::new(self.word(0) as u32, false, 0)
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.word(1)
    }

    /// The token's high and low word.
    pub(crate) fn token(&self) -> (u64, u64) {
        (self.word(3), self.word(2))
    }

    pub(crate) fn tcp_cookie(&self) -> TcpCookie {
        TcpCookie::of_words(self.word(3), self.word(2))
    }

    pub(crate) fn challenges(&self, streams: u8) -> Vec<u64> {
        (0..usize::from(streams)).map(|stream| self.word(4 + stream)).collect()
    }
}

impl fmt::Debug for Randomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Randomness(…)")
    }
}
