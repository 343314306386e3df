//! Tagged fields of the flexible value version (KIP-482).

use super::reader::Reader;
use super::value::ValueFault;

/// A tagged field, borrowed from its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedFieldView<'a> {
    /// The field's number.
    pub tag: u32,
    /// Its content.
    pub data: &'a [u8],
}

/// A tagged field on its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaggedField {
    /// The field's number.
    pub tag: u32,
    /// Its content.
    pub data: Vec<u8>,
}

/// Iterator over the tagged fields that the schema does not know, in stored order; a repeated tag comes as often as
/// it is there, and its last content counts. The bytes were checked when the value was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedFields<'a> {
    reader: Reader<'a>,
    left: u32,
    unknown_from: u32,
}

impl<'a> TaggedFields<'a> {
    /// No fields at all: what a version without tagged fields has.
    pub(super) const NONE: Self = Self { reader: Reader::new(&[]), left: 0, unknown_from: 0 };

    /// The fields as an owned list in the order in which they are written: ascending, each tag once, its last
    /// content.
    pub(super) fn to_owned_fields(self) -> Vec<TaggedField> {
        let mut fields: Vec<_> =
            self.map(|field| TaggedField { tag: field.tag, data: field.data.to_vec() }).collect();
        // A stable sort leaves repeated tags in stored order, so the last one is the one to keep.
        fields.sort_by_key(|field| field.tag);
        fields.dedup_by(|later, earlier| {
            let same = later.tag == earlier.tag;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        fields
    }
}

impl<'a> Iterator for TaggedFields<'a> {
    type Item = TaggedFieldView<'a>;

    fn next(&mut self) -> Option<TaggedFieldView<'a>> {
        while self.left > 0 {
            self.left -= 1;
            let field = read_field(&mut self.reader).ok()?;
            if field.tag >= self.unknown_from {
                return Some(field);
            }
        }
        None
    }
}

fn read_field<'a>(reader: &mut Reader<'a>) -> Result<TaggedFieldView<'a>, ValueFault> {
    let tag = reader.unsigned_varint("tag of a tagged field")?;
    let size = reader.unsigned_varint("size of a tagged field")?;
    let data = reader.take(size as usize, "tagged field")?;
    Ok(TaggedFieldView { tag, data })
}

/// Reads a tagged-field section, shows every field below `unknown_from` to `known` with the position behind it, and
/// returns the unknown ones and whether a tag came more than once.
pub(super) fn read_tagged_fields<'a>(
    reader: &mut Reader<'a>,
    unknown_from: u32,
    mut known: impl FnMut(TaggedFieldView<'a>, usize) -> Result<(), ValueFault>,
) -> Result<(TaggedFields<'a>, bool), ValueFault> {
    let count = reader.unsigned_varint("number of tagged fields")?;
    let section = TaggedFields { reader: *reader, left: count, unknown_from };
    let mut ascending = true;
    let mut previous = None;
    for _ in 0..count {
        let field = read_field(reader)?;
        ascending &= previous < Some(field.tag);
        previous = Some(field.tag);
        if field.tag < unknown_from {
            known(field, reader.position())?;
        }
    }
    Ok((section, !ascending && has_repeated_tag(section)))
}

/// Writers sort, so this runs only for odd values and may allocate. Sorting keeps a value made of a million tags
/// from costing the square of that.
fn has_repeated_tag(section: TaggedFields<'_>) -> bool {
    let mut tags: Vec<u32> = TaggedFields { unknown_from: 0, ..section }.map(|field| field.tag).collect();
    tags.sort_unstable();
    tags.windows(2).any(|pair| pair[0] == pair[1])
}
