//! The schema in a footer: a tree, written as the list of its elements, each group before what is in it.
//!
//! The library makes room for as many children as an element says to have, calls itself for each, and gives each column the names of all groups
//! that it is in: some bytes may ask for any memory, and for a stack of any depth.
//!
//! ```text
//! SchemaElement:  4: name   5: i32 number of children, none where it is a column
//! ```

use super::{DEPTH_MOST, STRUCT_TEXT_BYTES, Thrift};

/// Groups within groups. Ours has one, the root; lists and maps of other writers take two each.
const GROUPS_MOST: usize = 16;
/// Memory for a name on the way to a column, beside its letters.
const NAME_BYTES: u64 = 48;
/// Memory for all these names: in a footer of any length, and for each of its bytes. Columns that are in no group take less than thirteen.
const NAMES_SURE: u64 = 1 << 20;
const NAMES_TIMES_MOST: u64 = 16;

impl Thrift<'_> {
    /// Passes over a `FileMetaData` up to the end of its schema, of whose fields it is known that they are of their types. `None` where that is no tree, or
    /// takes much more memory than text.
    pub(super) fn schema(&mut self) -> Option<()> {
        let room = NAMES_TIMES_MOST.saturating_mul(self.0.len() as u64).saturating_add(NAMES_SURE);
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            if id == 2 {
                let (count, _) = self.list_head(STRUCT_TEXT_BYTES)?;
                return self.tree(count, room);
            }
            self.skip(kind, DEPTH_MOST)?;
        }
        // The library says that it is missing.
        Some(())
    }

    /// Passes over a tree of `elements`, whose columns' names take no more than `room`.
    fn tree(&mut self, elements: u64, room: u64) -> Option<()> {
        // Of each group that is not over: what is yet to come in it, and what the names on the way to that take.
        let mut open: Vec<(u64, u64)> = Vec::new();
        let (mut in_groups, mut names) = (0, 0_u64);
        for at in 0..elements {
            let (name_bytes, children) = self.element()?;
            while open.last().is_some_and(|(left, _)| *left == 0) {
                open.pop();
            }
            let way = match open.last_mut() {
                Some((left, above)) => {
                    *left -= 1;
                    above.saturating_add(NAME_BYTES + name_bytes)
                }
                // The root's name is part of none.
                None if at == 0 => 0,
                None => return None,
            };
            if children == 0 {
                names = names.saturating_add(way);
                if names > room {
                    return None;
                }
                continue;
            }
            in_groups += children;
            if in_groups >= elements || open.len() == GROUPS_MOST {
                return None;
            }
            open.push((children, way));
        }
        Some(())
    }

    /// Length of an element's name, and how many elements are in it.
    fn element(&mut self) -> Option<(u64, u64)> {
        let (mut id, mut name_bytes, mut children) = (0, 0, 0);
        while let Some(kind) = self.field(&mut id)? {
            match id {
                4 => {
                    name_bytes = self.varint()?;
                    self.pass(name_bytes)?;
                }
                5 => children = u64::try_from(self.int()?).ok()?,
                _ => self.skip(kind, DEPTH_MOST)?,
            }
        }
        Some((name_bytes, children))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 0x7f {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    /// Of a footer with these elements: the length of a name, and how many elements are in it.
    fn read(elements: &[(usize, u64)]) -> Option<()> {
        let mut footer = [&[0x15, 4, 0x19, 0xfc][..], &varint(elements.len() as u64)[..]].concat();
        for (name_bytes, children) in elements {
            footer.push(0x48);
            footer.extend(varint(*name_bytes as u64));
            footer.extend(vec![b'x'; *name_bytes]);
            if *children > 0 {
                footer.push(0x15);
                footer.extend(varint(children * 2));
            }
            footer.push(0);
        }
        // No rows and no row groups.
        footer.extend([0x16, 0, 0x19, 0x0c, 0]);
        assert_eq!(Thrift(&footer).footer(), Some(()));
        Thrift(&footer).schema()
    }

    #[test]
    fn an_element_has_as_many_children_as_there_are() {
        assert_eq!(read(&[(6, 3), (1, 0), (1, 2), (1, 0), (1, 0), (1, 0)]), Some(()));
        assert_eq!(read(&[(6, 1 << 30), (1, 0)]), None, "room for eight gigabytes of them");
        assert_eq!(read(&[(6, 1), (1, 0), (1, 0)]), None, "two roots");
    }

    #[test]
    fn groups_are_in_few_groups() {
        let nested = |groups| [vec![(1, 1); groups], vec![(1, 0)]].concat();
        assert_eq!(read(&nested(GROUPS_MOST)), Some(()));
        assert_eq!(read(&nested(GROUPS_MOST + 1)), None);
    }

    /// Each column has the name of its group, too.
    #[test]
    fn a_long_name_stands_for_few_columns() {
        let columns = |group_bytes| [vec![(6, 1), (group_bytes, 2_000)], vec![(1, 0); 2_000]].concat();
        assert_eq!(read(&columns(100)), Some(()));
        assert_eq!(read(&columns(100_000)), None, "200 MB in 110 kB");
        let flat: Vec<_> = [(6, 200_000)].into_iter().chain((0..200_000).map(|_| (1, 0))).collect();
        assert_eq!(read(&flat), Some(()), "as many columns as text");
    }
}
