//! Messages that are described by a table of fields, read from bytes straight into JSON text.
//!
//! A table says what Kafka's message format says (KIP-482): which fields a version has, in which order, and which of
//! them are tagged. All integers are big-endian; lengths are fixed-size up to `flexible_since` and unsigned varints of
//! length + 1 from there on. Reading is as lenient as Kafka's: bytes behind the last field are ignored, the stated
//! size of a known tagged field as well, and of a repeated tag the last content counts.

use std::fmt::Write;

use redrive::log_dir::checkpoint::Uuid;

use super::json::{self, Dialect};

/// Longest string, bytes.
const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Type of a field.
#[derive(Debug)]
pub(super) enum Kind {
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    /// 16 bytes, shown as 22 characters.
    Uuid,
    String,
    /// A string; `consumer` makes the [`Kind::Embedded`] fields behind it readable.
    ProtocolType,
    /// Shown in base64.
    Bytes,
    /// Bytes that are a message with its version in front if the group's protocol type is `consumer`. Shown as
    /// that message where it can be read, otherwise in base64.
    Embedded(&'static Message),
    Array(&'static Kind),
    Struct(&'static [Field]),
}

/// A field of a message or structure.
#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    kind: Kind,
    /// First and last version that have it.
    versions: (i16, i16),
    nullable_since: i16,
    /// Number of a tagged field, and the JSON text of its default, with which it is not shown.
    tag: Option<(u32, &'static str)>,
}

/// A mandatory field of every version.
pub(super) const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, versions: (0, i16::MAX), nullable_since: i16::MAX, tag: None }
}

impl Field {
    /// Only from this version on.
    pub(super) const fn since(mut self, version: i16) -> Self {
        self.versions.0 = version;
        self
    }

    /// Only up to this version, inclusive.
    pub(super) const fn until(mut self, version: i16) -> Self {
        self.versions.1 = version;
        self
    }

    /// May be null.
    pub(super) const fn nullable(mut self) -> Self {
        self.nullable_since = 0;
        self
    }

    /// Tagged; `default` is JSON text.
    pub(super) const fn tagged(mut self, tag: u32, default: &'static str) -> Self {
        self.tag = Some((tag, default));
        self
    }
}

/// A message: its fields in all versions.
#[derive(Debug)]
pub(super) struct Message {
    /// Highest version; the lowest is 0.
    pub(super) version_max: i16,
    /// First version with varint lengths and tagged fields.
    pub(super) flexible_since: i16,
    pub(super) fields: &'static [Field],
}

/// Never flexible.
pub(super) const NEVER: i16 = i16::MAX;

/// Why bytes are not the message they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SchemaFault {
    #[error("it ends inside {0}")]
    Ends(&'static str),
    #[error("{0} is null")]
    Null(&'static str),
    #[error("{field} has length {length} with {left} bytes left")]
    Length { field: &'static str, length: i32, left: usize },
    #[error("the variable-length integer of {0} has no end")]
    Varint(&'static str),
    #[error("{0} is of a newer version")]
    Newer(&'static str),
}

/// Appends the JSON object of a message of a known version to `out`; on an error the text is incomplete.
///
/// Text is at most about twenty times the bytes.
///
/// # Errors
/// [`SchemaFault`].
pub(super) fn decode(
    message: &Message,
    version: i16,
    bytes: &[u8],
    dialect: Dialect,
    out: &mut String,
) -> Result<(), SchemaFault> {
    let flexible = version >= message.flexible_since;
    Decoder { rest: bytes, version, flexible, dialect, is_consumer: false, has_structures: true }
        .fields(message.fields, out)
}

struct Decoder<'a> {
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    dialect: Dialect,
    is_consumer: bool,
    /// Whether structures inside the message can be shown; see [`embedded`].
    has_structures: bool,
}

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize, name: &'static str) -> Result<&'a [u8], SchemaFault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(SchemaFault::Ends(name))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, name: &'static str) -> Result<[u8; N], SchemaFault> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(SchemaFault::Ends(name))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn varint(&mut self, name: &'static str) -> Result<i32, SchemaFault> {
        let mut value = 0u32;
        for group in 0..5 {
            let [byte] = self.array(name)?;
            value |= u32::from(byte & 0x7f) << (7 * group);
            if byte < 0x80 {
                return Ok(value.cast_signed());
            }
        }
        Err(SchemaFault::Varint(name))
    }

    /// A length or count that the bytes left can hold; `None` is null.
    fn length(&mut self, short: bool, name: &'static str) -> Result<Option<usize>, SchemaFault> {
        let length = match (self.flexible, short) {
            (true, _) => self.varint(name)?.wrapping_sub(1),
            (false, true) => i32::from(i16::from_be_bytes(self.array(name)?)),
            (false, false) => i32::from_be_bytes(self.array(name)?),
        };
        let left = self.rest.len();
        match usize::try_from(length) {
            Err(_) => Ok(None),
            Ok(count) if count <= left => Ok(Some(count)),
            Ok(_) => Err(SchemaFault::Length { field: name, length, left }),
        }
    }

    fn fields(&mut self, fields: &'static [Field], out: &mut String) -> Result<(), SchemaFault> {
        out.push('{');
        for field in fields.iter().filter(|field| field.tag.is_none()) {
            if (field.versions.0..=field.versions.1).contains(&self.version) {
                json::push_name(out, field.name);
                self.value(&field.kind, self.version >= field.nullable_since, field.name, out)?;
            }
        }
        if self.flexible {
            self.tagged_fields(fields, out)?;
        }
        out.push('}');
        Ok(())
    }

    fn tagged_fields(&mut self, fields: &'static [Field], out: &mut String) -> Result<(), SchemaFault> {
        let mut found: Vec<Option<String>> = Vec::new();
        for _ in 0..self.varint("the number of tagged fields")? {
            let tag = self.varint("a tag")?.cast_unsigned();
            let size = self.varint("the size of a tagged field")?;
            let known = fields.iter().position(|field| field.tag.is_some_and(|(known, _)| known == tag));
            let Some(known) = known else {
                let left = self.rest.len();
                let fault = SchemaFault::Length { field: "a tagged field", length: size, left };
                self.take(usize::try_from(size).map_err(|_| fault)?, "a tagged field")?;
                continue;
            };
            let field = &fields[known];
            let mut text = String::new();
            self.tagged_value(field, &mut text)?;
            found.resize(fields.len(), None);
            found[known] = Some(text);
        }
        for (field, text) in fields.iter().zip(found) {
            if let (Some((_, default)), Some(text)) = (field.tag, text)
                && text != default
            {
                json::push_name(out, field.name);
                out.push_str(&text);
            }
        }
        Ok(())
    }

    fn tagged_value(&mut self, field: &'static Field, out: &mut String) -> Result<(), SchemaFault> {
        let nullable = self.version >= field.nullable_since;
        match &field.kind {
            // In a tagged field the mark of a null structure is a varint, elsewhere a byte.
            Kind::Struct(fields) if nullable => {
                if self.varint(field.name)? == 0 {
                    out.push_str("null");
                    return Ok(());
                }
                self.fields(fields, out)
            }
            kind => self.value(kind, nullable, field.name, out),
        }
    }

    fn value(
        &mut self,
        kind: &'static Kind,
        nullable: bool,
        name: &'static str,
        out: &mut String,
    ) -> Result<(), SchemaFault> {
        // Writing to a string cannot fail.
        let _ = match kind {
            Kind::Int8 => write!(out, "{}", i8::from_be_bytes(self.array(name)?)),
            Kind::Int16 => write!(out, "{}", i16::from_be_bytes(self.array(name)?)),
            Kind::Uint16 => write!(out, "{}", u16::from_be_bytes(self.array(name)?)),
            Kind::Int32 => write!(out, "{}", i32::from_be_bytes(self.array(name)?)),
            Kind::Int64 => write!(out, "{}", i64::from_be_bytes(self.array(name)?)),
            Kind::Uuid => write!(out, "\"{}\"", Uuid(self.array(name)?)),
            Kind::String | Kind::ProtocolType | Kind::Bytes | Kind::Embedded(_) | Kind::Array(_) => {
                let short = matches!(kind, Kind::String | Kind::ProtocolType);
                match self.length(short, name)? {
                    None if nullable => out.push_str("null"),
                    None => return Err(SchemaFault::Null(name)),
                    Some(length) => self.sized(kind, length, name, out)?,
                }
                Ok(())
            }
            Kind::Struct(_) if !self.has_structures => return Err(SchemaFault::Newer(name)),
            Kind::Struct(fields) => {
                if nullable && i8::from_be_bytes(self.array(name)?) < 0 {
                    out.push_str("null");
                } else {
                    self.fields(fields, out)?;
                }
                Ok(())
            }
        };
        Ok(())
    }

    /// A string or bytes of `length` bytes, or an array of `length` elements.
    fn sized(
        &mut self,
        kind: &'static Kind,
        length: usize,
        name: &'static str,
        out: &mut String,
    ) -> Result<(), SchemaFault> {
        if let Kind::Array(element) = kind {
            out.push('[');
            for _ in 0..length {
                json::separate(out);
                self.value(element, false, name, out)?;
            }
            out.push(']');
            return Ok(());
        }
        let bytes = self.take(length, name)?;
        match kind {
            Kind::Embedded(message) if self.is_consumer => embedded(message, bytes, self.dialect, out),
            Kind::Bytes | Kind::Embedded(_) => json::push_base64(out, bytes),
            _ if length > STRING_BYTES_MAX => {
                let (length, left) = (length as i32, self.rest.len());
                return Err(SchemaFault::Length { field: name, length, left });
            }
            _ => {
                self.is_consumer |= matches!(kind, Kind::ProtocolType) && bytes == b"consumer";
                json::push_utf8(out, bytes, self.dialect);
            }
        }
        Ok(())
    }
}

/// Appends a message inside a field, or its bytes if it is none.
///
/// As with Kafka's tool, a negative version is read as 0 and one that is too high as the highest; of the latter only
/// messages without structures inside are shown.
fn embedded(message: &Message, bytes: &[u8], dialect: Dialect, out: &mut String) {
    let before = out.len();
    if let Some((version, body)) = bytes.split_first_chunk() {
        let stated = i16::from_be_bytes(*version);
        let version = stated.clamp(0, message.version_max);
        let flexible = version >= message.flexible_since;
        let has_structures = stated <= message.version_max;
        let mut decoder =
            Decoder { rest: body, version, flexible, dialect, is_consumer: false, has_structures };
        if decoder.fields(message.fields, out).is_ok() {
            return;
        }
    }
    out.truncate(before);
    json::push_base64(out, bytes);
}
