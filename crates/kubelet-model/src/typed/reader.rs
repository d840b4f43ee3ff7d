//! Reads types from a [`Value`], and knows where in it they are.
//!
//! Pure. One layer instead of one for the value, one for unknown fields and one for
//! places: what is made for each type and layer adds up to half a megabyte.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value, map};

use crate::manifest::{push_index, push_key};

/// Where in the whole value something is.
pub(super) struct Place<'p> {
    inside: Option<&'p Place<'p>>,
    step: Step<'p>,
}

enum Step<'p> {
    Whole,
    Key(&'p str),
    Index(usize),
}

impl Place<'_> {
    pub(super) const WHOLE: Self = Self { inside: None, step: Step::Whole };

    fn push_to(&self, text: &mut String) {
        if let Some(inside) = self.inside {
            inside.push_to(text);
        }
        match self.step {
            Step::Whole => {}
            Step::Key(key) => push_key(text, key),
            Step::Index(index) => push_index(text, index),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.push_to(&mut text);
        text
    }
}

/// What is found on the way.
pub(super) struct Notes<'n> {
    /// Hears of every field that its type does not have.
    pub(super) unknown: &'n mut dyn FnMut(String),
    /// The innermost field that could not be read.
    pub(super) wrong: Option<String>,
}

/// Reads what `seed` is for.
pub(super) fn read<'de, S: DeserializeSeed<'de>>(
    seed: S,
    value: Value,
    place: &Place<'_>,
    notes: &mut Notes<'_>,
) -> Result<S::Value, Error> {
    let read = seed.deserialize(Reader { value, place, notes: &mut *notes });
    if read.is_err() && notes.wrong.is_none() {
        notes.wrong = Some(place.text());
    }
    read
}

struct Reader<'r, 'n> {
    value: Value,
    place: &'r Place<'r>,
    notes: &'r mut Notes<'n>,
}

impl<'de> Deserializer<'de> for Reader<'_, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(is) => visitor.visit_bool(is),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., Some(number)) => visitor.visit_f64(number),
                _ => Err(Error::custom("a number out of range")),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => {
                let length = items.len();
                let items = items.into_iter().enumerate();
                let mut items = Items { items, place: self.place, notes: self.notes };
                let read = visitor.visit_seq(&mut items)?;
                match items.items.len() {
                    0 => Ok(read),
                    _ => Err(Error::invalid_length(length, &"fewer elements in array")),
                }
            }
            Value::Object(fields) => {
                let length = fields.len();
                let mut fields = Fields::new(fields, self.place, self.notes);
                let read = visitor.visit_map(&mut fields)?;
                match fields.left.len() {
                    0 => Ok(read),
                    _ => Err(Error::invalid_length(length, &"fewer elements in map")),
                }
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (name, content) = match self.value {
            Value::String(name) => (name, None),
            Value::Object(fields) if fields.len() == 1 => {
                let (name, content) = fields.into_iter().next().expect("it has one");
                (name, Some(content))
            }
            Value::Object(_) => {
                return Err(Error::invalid_value(Unexpected::Map, &"map with a single key"));
            }
            other => return Err(Error::invalid_type(unexpected(&other), &"string or map")),
        };
        visitor.visit_enum(Variant { name, content, place: self.place, notes: self.notes })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        (self.notes.unknown)(self.place.text());
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(is) => Unexpected::Bool(*is),
        Value::Number(_) => Unexpected::Other("number"),
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

struct Items<'r, 'n> {
    items: std::iter::Enumerate<std::vec::IntoIter<Value>>,
    place: &'r Place<'r>,
    notes: &'r mut Notes<'n>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        let place = Place { inside: Some(self.place), step: Step::Index(index) };
        read(seed, value, &place, self.notes).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields<'r, 'n> {
    left: map::IntoIter,
    next: Option<(String, Value)>,
    place: &'r Place<'r>,
    notes: &'r mut Notes<'n>,
}

impl<'r, 'n> Fields<'r, 'n> {
    fn new(fields: Map<String, Value>, place: &'r Place<'r>, notes: &'r mut Notes<'n>) -> Self {
        Self { left: fields.into_iter(), next: None, place, notes }
    }
}

impl<'de> MapAccess<'de> for Fields<'_, '_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((key, value)) = self.left.next() else { return Ok(None) };
        let name: StrDeserializer<'_, Error> = key.as_str().into_deserializer();
        let read = seed.deserialize(name)?;
        self.next = Some((key, value));
        Ok(Some(read))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (key, value) =
            self.next.take().ok_or_else(|| Error::custom("a value is asked for before its key"))?;
        let place = Place { inside: Some(self.place), step: Step::Key(&key) };
        read(seed, value, &place, self.notes)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

struct Variant<'r, 'n> {
    name: String,
    content: Option<Value>,
    place: &'r Place<'r>,
    notes: &'r mut Notes<'n>,
}

/// What a variant holds.
struct Content<'r, 'n> {
    name: String,
    value: Option<Value>,
    place: &'r Place<'r>,
    notes: &'r mut Notes<'n>,
}

impl<'de, 'r, 'n> EnumAccess<'de> for Variant<'r, 'n> {
    type Error = Error;
    type Variant = Content<'r, 'n>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Content<'r, 'n>), Error> {
        let name: StrDeserializer<'_, Error> = self.name.as_str().into_deserializer();
        let read = seed.deserialize(name)?;
        let Self { name, content: value, place, notes } = self;
        Ok((read, Content { name, value, place, notes }))
    }
}

impl<'de> VariantAccess<'de> for Content<'_, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.value {
            None | Some(Value::Null) => Ok(()),
            Some(other) => Err(Error::invalid_type(unexpected(&other), &"unit variant")),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        let Some(value) = self.value else {
            return Err(Error::invalid_type(Unexpected::UnitVariant, &"newtype variant"));
        };
        let place = Place { inside: Some(self.place), step: Step::Key(&self.name) };
        read(seed, value, &place, self.notes)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.newtype_variant_seed(Visited(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.newtype_variant_seed(Visited(visitor))
    }
}

/// Whatever is there, for a visitor who knows what it wants.
struct Visited<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Visited<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        from.deserialize_any(self.0)
    }
}
