//! A JSON value that a peer sent, of which no more is kept than has room: `{"":1}` takes a hundred times its text.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Room for a value, in places of 32 bytes: 64 MiB. The snapshot of a host with 4,000 interfaces takes a quarter.
const ROOM: usize = 2 << 20;
/// Bytes of a place.
const PLACE: usize = 32;
/// Places that an object takes beside its members: its first node has room for eleven.
const OBJECT: usize = 20;

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

    fn text(&mut self, text: &str) -> Value {
        self.take(1 + text.len() / PLACE);
        text.into()
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

    fn visit_unit<E>(mut self) -> Result<Value, E> {
        self.take(1);
        Ok(Value::Null)
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<Value, E> {
        self.take(1);
        Ok(value.into())
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<Value, E> {
        self.take(1);
        Ok(value.into())
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<Value, E> {
        self.take(1);
        Ok(value.into())
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<Value, E> {
        self.take(1);
        Ok(value.into())
    }

    fn visit_str<E>(mut self, value: &str) -> Result<Value, E> {
        Ok(self.text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while *self.0 > 0 {
            match from.next_element_seed(Room(self.0))? {
                Some(value) => all.push(value),
                None => return Ok(all.into()),
            }
        }
        while from.next_element::<IgnoredAny>()?.is_some() {}
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut from: A) -> Result<Value, A::Error> {
        self.take(OBJECT);
        let mut all = Map::new();
        while *self.0 > 0 {
            let Some(name) = from.next_key::<String>()? else { return Ok(all.into()) };
            self.take(1 + name.len() / PLACE);
            all.insert(name, from.next_value_seed(Room(self.0))?);
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
}
