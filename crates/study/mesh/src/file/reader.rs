//! Values of a TOML text with their places.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{MeshError, one_of, shown};

/// A table and its place, such as `site[0]`.
pub(super) struct Table<'a> {
    text: &'a str,
    place: String,
    table: &'a DeTable<'a>,
}

/// A value and its place.
pub(super) struct Field<'a> {
    text: &'a str,
    place: String,
    value: &'a Spanned<DeValue<'a>>,
}

/// Line and column of a byte, from 1.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

impl<'a> Table<'a> {
    pub(super) fn root(text: &'a str, table: &'a DeTable<'a>) -> Self {
        Self { text, place: String::new(), table }
    }

    /// Refuses every key but `allowed`.
    pub(super) fn only(&self, allowed: &[&str]) -> Result<(), MeshError> {
        let Some(key) = self.table.keys().find(|key| !allowed.contains(&key.get_ref().as_ref())) else {
            return Ok(());
        };
        let message = format!("no such key, {}", one_of(key.get_ref(), allowed.iter().copied()));
        let error = MeshError::new(self.place_of(&shown(key.get_ref())), message);
        Err(MeshError { position: Some(position(self.text, key.span().start)), ..error })
    }

    fn place_of(&self, key: &str) -> String {
        if self.place.is_empty() { key.to_owned() } else { format!("{}.{key}", self.place) }
    }

    pub(super) fn field(&self, key: &str) -> Option<Field<'a>> {
        Some(Field { text: self.text, place: self.place_of(key), value: self.table.get(key)? })
    }

    /// A key that must be there.
    pub(super) fn needed(&self, key: &str, example: &str) -> Result<Field<'a>, MeshError> {
        self.field(key).ok_or_else(|| self.error(format!("needs {key}, such as {key} = {example}")))
    }

    /// An error about the table as a whole.
    pub(super) fn error(&self, message: impl std::fmt::Display) -> MeshError {
        MeshError::new(if self.place.is_empty() { "mesh" } else { &self.place }, message)
    }

    /// The tables of an array `[[key]]`.
    pub(super) fn tables(&self, key: &str, most: usize) -> Result<Vec<Table<'a>>, MeshError> {
        let Some(field) = self.field(key) else { return Ok(Vec::new()) };
        let wrong = || field.error(format!("use [[{key}]] tables"));
        let items = field.items(most)?.ok_or_else(wrong)?;
        let table = |item: Field<'a>| {
            let table = item.value.get_ref().as_table().ok_or_else(wrong)?;
            Ok(Table { text: self.text, place: item.place, table })
        };
        items.into_iter().map(table).collect()
    }
}

impl<'a> Field<'a> {
    pub(super) fn error(&self, message: impl std::fmt::Display) -> MeshError {
        let position = Some(position(self.text, self.value.span().start));
        MeshError { position, ..MeshError::new(&self.place, message) }
    }

    /// The items of an array; `None` where it is none.
    fn items(&self, most: usize) -> Result<Option<Vec<Field<'a>>>, MeshError> {
        let Some(array) = self.value.get_ref().as_array() else { return Ok(None) };
        if array.len() > most {
            return Err(self.error(format!("{} of them, at most {most}", array.len())));
        }
        let item = |(index, value)| Field { text: self.text, place: format!("{}[{index}]", self.place), value };
        Ok(Some(array.iter().enumerate().map(item).collect()))
    }

    pub(super) fn string(&self) -> Result<&'a str, MeshError> {
        self.value.get_ref().as_str().ok_or_else(|| self.error("use a text in quotes"))
    }

    /// A text, or several in an array.
    pub(super) fn strings(&self, most: usize) -> Result<Vec<(Field<'a>, &'a str)>, MeshError> {
        let items = match self.items(most)? {
            Some(items) => items,
            None => vec![Field { text: self.text, place: self.place.clone(), value: self.value }],
        };
        items
            .into_iter()
            .map(|item| Ok((item.string()?, item)))
            .map(|read| read.map(|(text, item)| (item, text)))
            .collect()
    }

    pub(super) fn truth(&self) -> Result<bool, MeshError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.error("use true or false"))
    }

    /// A whole number from `low` to `high`.
    pub(super) fn number(&self, low: u64, high: u64) -> Result<u64, MeshError> {
        let DeValue::Integer(number) = self.value.get_ref() else {
            return Err(self.error(format!("use a whole number from {low} to {high}")));
        };
        let value = u64::from_str_radix(number.as_str(), number.radix()).ok();
        value
            .filter(|value| (low..=high).contains(value))
            .ok_or_else(|| self.error(format!("{}: use a whole number from {low} to {high}", shown(number.as_str()))))
    }

    /// A text that is read as a `T`.
    pub(super) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(&self) -> Result<T, MeshError> {
        self.string()?.parse().map_err(|error| self.error(error))
    }
}
