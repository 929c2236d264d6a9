//! An object as a list has it, which watches have kept up to date since the object was read. Pure.

use super::encoding::Encoding;
use super::object_set::ObjectSet;
use super::{json, protobuf};

impl Encoding {
    /// The answer with this object, if the list in this encoding is newer and has it.
    pub(super) fn listed_object(self, object: &ObjectSet, list: Vec<u8>) -> Option<Vec<u8>> {
        let list = self.list(list)?;
        let (name, _) = object.objects.iter().next()?;
        let listed = list.objects.get(name).filter(|_| list.version > object.version)?;
        match self {
            Self::Json => json::answer(&object.kind, &object.api_version, listed),
            Self::Protobuf => Some(protobuf::envelope(&object.kind, &object.api_version, listed.clone())),
        }
    }
}
