//! A JSON value from a peer, kept only as far as memory is allowed for it: `{"":1}` takes a hundred times its text.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Room for a value, in places of 32 bytes: 64 MiB. The snapshot of a host with 1,000 interfaces fits.
const ROOM: usize = 2 << 20;
/// Bytes of a place: those of a value in a list, without what it points to.
const PLACE: usize = 32;
/// Places of an object: its first node (640 bytes), which has room for eleven members.
const OBJECT: usize = 20;
const OBJECT_MEMBERS: usize = 11;
/// Places of a further member: its share of a node that may be half full, and of the nodes above.
const MEMBER: usize = 4;

/// Reads a value. What has no room is left out.
///
/// # Errors
/// It is no JSON.
pub(crate) fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    Room(&mut { ROOM }).deserialize(from)
}

/// Places that are left.
struct Room<'a>(&'a mut usize);

impl Room<'_> {
    fn take(&mut self, places: usize) {
        *self.0 = self.0.saturating_sub(places);
    }

    /// Takes what an allocator gives for a text: it adds 8 bytes, and gives whole sixteens, 32 at least.
    fn take_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.take((text.len() + 8).next_multiple_of(16).max(PLACE).div_ceil(PLACE));
        }
    }
}

impl<'de> DeserializeSeed<'de> for Room<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Room<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(mut self, value: &str) -> Result<Value, E> {
        self.take_text(value);
        Ok(if *self.0 > 0 { value.into() } else { Value::Null })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all: Vec<Value> = Vec::new();
        while *self.0 > 0 {
            let Some(value) = from.next_element_seed(Room(self.0))? else { return Ok(all.into()) };
            if all.len() == all.capacity() {
                // By itself a list begins with room for four.
                let more = all.len().max(1);
                // The first time with what the allocator adds.
                let Some(left) = self.0.checked_sub(more + usize::from(all.is_empty())) else {
                    *self.0 = 0;
                    break;
                };
                *self.0 = left;
                all.reserve_exact(more);
            }
            all.push(value);
        }
        while from.next_element::<IgnoredAny>()?.is_some() {}
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut from: A) -> Result<Value, A::Error> {
        self.take(OBJECT);
        let mut all = Map::new();
        while *self.0 > 0 {
            let Some(name) = from.next_key::<String>()? else { return Ok(all.into()) };
            self.take_text(&name);
            if all.len() >= OBJECT_MEMBERS {
                self.take(MEMBER);
            }
            let has_room = *self.0 > 0;
            let value = from.next_value_seed(Room(self.0))?;
            if has_room {
                all.insert(name, value);
            }
        }
        while from.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Value {
        bounded(&mut serde_json::Deserializer::from_str(text)).unwrap()
    }

    #[test]
    fn a_value_is_as_it_was() {
        let text = r#"{"a":[1,-2,2.5,null,true,"text"],"b":{"c":{},"d":[]},"e":18446744073709551615}"#;
        assert_eq!(read(text), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let many = |element: &str, count: usize| format!("[{}]", vec![element; count].join(","));
        let kept = |text: String| read(&text).as_array().unwrap().len();
        assert_eq!(kept(many("1", 1_000_000)), 1_000_000);
        let objects = kept(many(r#"{"":1}"#, 700_000));
        assert!((90_000..100_000).contains(&objects), "{objects}");
        // What follows is read all the same.
        let all = read(&format!(r#"{{"many":{},"after":1}}"#, many(r#"{"":1}"#, 200_000)));
        assert_eq!(all.as_object().unwrap().len(), 1);
        assert!(bounded(&mut serde_json::Deserializer::from_str("[1,")).is_err());
    }

    /// Bytes that an allocator gives for a value, beside its own 32. Objects are not counted.
    fn taken(value: &Value) -> usize {
        let given = |bytes: usize| if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) };
        match value {
            Value::Array(all) => given(all.capacity() * size_of::<Value>()) + all.iter().map(taken).sum::<usize>(),
            Value::String(text) => given(text.len()),
            _ => 0,
        }
    }

    #[test]
    fn all_that_is_kept_has_room() {
        assert_eq!(size_of::<Value>(), PLACE);
        let deep = format!("{}0{}", "[".repeat(110), "]".repeat(110));
        let long = format!("\"{}\"", "x".repeat(50));
        let elements = [(deep.as_str(), 12_000), ("[]", 1_100_000), ("\"a\"", 1_100_000), (long.as_str(), 600_000)];
        for (element, count) in elements {
            let text = format!("[{}]", vec![element; count].join(","));
            let kept = read(&text);
            assert!(kept.as_array().unwrap().len() < count, "{element}");
            let taken = taken(&kept);
            assert!((ROOM * PLACE / 2..=ROOM * PLACE).contains(&taken), "{element}: {taken} bytes");
        }
        let members: Vec<String> = (0..600_000).map(|number| format!("\"{number}\":1")).collect();
        let kept = read(&format!("{{{}}}", members.join(",")));
        let kept = kept.as_object().unwrap().len();
        assert!((400_000..420_000).contains(&kept), "{kept}");
        // One that is too long has no room at all.
        let filled = format!("[{}{}\"{}\"]", "[],".repeat(700_000), "\"a\",".repeat(1_000), "x".repeat(40 << 20));
        let kept = read(&filled);
        assert_eq!((kept.as_array().unwrap().len(), kept[701_000].is_null()), (701_001, true));
    }
}
