//! Lists and words that the other end sent, read in bounded memory.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads a list of at most `MOST` elements that the other end sent: an element can take far more memory than its text.
///
/// # Errors
/// The list is longer, or one of its elements cannot be read.
pub fn bounded_list<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = elements.next_element()? {
                if list.len() == MOST {
                    return Err(A::Error::invalid_length(MOST + 1, &self));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}

/// Counters of a host that are read, and the longest name of one: what a host with some NICs of many queues has.
const COUNTERS_MOST: usize = 1 << 15;
const COUNTER_NAME_MOST: usize = 256;

/// Reads counters that the other end sent. Those beyond the first 32,768, and those with names of more than 256 bytes, are left out.
///
/// # Errors
/// They are no counters.
pub fn bounded_counters<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, i64>, D::Error> {
    struct Counters;

    impl<'de> Visitor<'de> for Counters {
        type Value = BTreeMap<String, i64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("counters by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut counters = BTreeMap::new();
            while let Some((name, by)) = all.next_entry::<String, i64>()? {
                if counters.len() < COUNTERS_MOST && name.len() <= COUNTER_NAME_MOST {
                    counters.insert(name, by);
                }
            }
            Ok(counters)
        }
    }

    deserializer.deserialize_map(Counters)
}

/// Reads a name that the other end sent, of at most `MOST` bytes.
///
/// # Errors
/// It is longer, or no text.
pub fn bounded_name<'de, D: Deserializer<'de>, const MOST: usize>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name.len() > MOST {
        return Err(D::Error::invalid_length(name.len(), &format!("a name of at most {MOST} bytes").as_str()));
    }
    Ok(name)
}

/// Reads words that the other end sent, or that stand in a file, as [`cut_words`] leaves them.
///
/// # Errors
/// They are no text.
pub fn short_words<'de, D: Deserializer<'de>, const MOST: usize>(deserializer: D) -> Result<String, D::Error> {
    Ok(cut_words(String::deserialize(deserializer)?, MOST))
}

/// The first `most` bytes of a sentence that the other end sent, in whole characters: nobody reads on.
pub fn cut_words(mut words: String, most: usize) -> String {
    if words.len() > most {
        let end = (0..=most).rev().find(|end| words.is_char_boundary(*end));
        words.truncate(end.unwrap_or(0));
        words.shrink_to_fit();
        words.push('…');
    }
    words
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn a_host_has_so_many_counters() {
        #[derive(Deserialize)]
        struct Report(#[serde(deserialize_with = "bounded_counters")] BTreeMap<String, i64>);
        let long = "x".repeat(COUNTER_NAME_MOST + 1);
        let Report(read) = serde_json::from_str(&format!(r#"{{"a":-1,"{long}":2,"b":3}}"#)).unwrap();
        assert_eq!(read.into_iter().collect::<Vec<_>>(), [("a".into(), -1), ("b".into(), 3)]);
        let many: BTreeMap<String, i64> = (0..50_000).map(|number| (format!("{number}"), 1)).collect();
        let Report(read) = serde_json::from_str(&serde_json::to_string(&many).unwrap()).unwrap();
        assert_eq!(read.len(), COUNTERS_MOST);
        assert!(serde_json::from_str::<Report>("[1]").is_err());
    }

    #[test]
    fn lists_and_names_of_the_other_end_have_a_length() {
        #[derive(Debug, Deserialize)]
        struct Report {
            #[serde(deserialize_with = "bounded_list::<_, _, 3>")]
            list: Vec<u8>,
            #[serde(deserialize_with = "bounded_name::<_, 4>")]
            name: String,
        }
        let read = |list: &str, name: &str| {
            serde_json::from_str::<Report>(&format!(r#"{{"list":{list},"name":"{name}"}}"#))
                .map_err(|why| why.to_string())
        };
        let report = read("[1,2,3]", "eth0").unwrap();
        assert_eq!((report.list.len(), report.name.as_str()), (3, "eth0"));
        assert!(read("[1,2,3,4]", "eth0").unwrap_err().contains("at most 3 elements"));
        assert!(read("[]", "eth00").unwrap_err().contains("at most 4 bytes"));
    }

    #[test]
    fn words_are_cut_between_characters() {
        assert_eq!(cut_words("reset by peer".into(), 13), "reset by peer");
        assert_eq!(cut_words("reset by peer".into(), 5), "reset…");
        assert_eq!(cut_words("ééé".into(), 3), "é…");
    }
}
