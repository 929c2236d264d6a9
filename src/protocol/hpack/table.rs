//! The static table and the dynamic table (RFC 7541 sections 2.3 and 4, appendix A). Pure.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::Field;

/// Recent fields, newest first, never more than `limit` in size.
#[derive(Debug)]
pub(super) struct DynamicTable {
    fields: VecDeque<Field>,
    size: usize,
    limit: usize,
}

impl DynamicTable {
    pub(super) fn new(limit: usize) -> Self {
        Self { fields: VecDeque::new(), size: 0, limit }
    }

    /// A field larger than the whole table empties it and is not added (section 4.4).
    pub(super) fn insert(&mut self, field: Field) {
        let size = field.size();
        self.evict(self.limit.saturating_sub(size));
        if size <= self.limit {
            self.size += size;
            self.fields.push_front(field);
        }
    }

    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    fn evict(&mut self, room: usize) {
        while self.size > room {
            let Some(field) = self.fields.pop_back() else { break };
            self.size -= field.size();
        }
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter()
    }
}

/// The field at `index` of the combined tables; the first index is 1.
pub(super) fn field_at(index: usize, dynamic: &DynamicTable) -> Option<Cow<'_, Field>> {
    let index = index.checked_sub(1)?;
    match STATIC_TABLE.get(index) {
        Some((name, value)) => Some(Cow::Owned(Field::fixed(name, value))),
        None => dynamic.fields.get(index - STATIC_TABLE.len()).map(Cow::Borrowed),
    }
}

/// The position of a field in the tables.
pub(super) enum TableMatch {
    Whole(usize),
    Name(usize),
    Nowhere,
}

pub(super) fn find(field: &Field, dynamic: &DynamicTable) -> TableMatch {
    let fixed = STATIC_TABLE.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let seen = dynamic.fields.iter().map(|field| (&*field.name, &*field.value));
    let mut best = TableMatch::Nowhere;
    for (index, (name, value)) in (1..).zip(fixed.chain(seen)) {
        if name == &*field.name {
            if value == &*field.value {
                return TableMatch::Whole(index);
            }
            if matches!(best, TableMatch::Nowhere) {
                best = TableMatch::Name(index);
            }
        }
    }
    best
}

const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];
