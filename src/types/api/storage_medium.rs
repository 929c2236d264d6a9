//! The storage medium of an emptyDir. Pure.

use super::decode::{Decode, DecodeContext, DecodeError, Input, text};
use super::encode::{Encode, Json};
use super::quantity::Quantity;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageMedium {
    /// The node's disk.
    #[default]
    Disk,
    /// A tmpfs.
    Memory,
    /// A hugetlbfs; without a size, of the only page size that the pod requests.
    HugePages { page_size: Option<Quantity> },
}

impl Decode for StorageMedium {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let text = text(input)?;
        let page_size = match text.as_str() {
            "" => return Ok(Self::Disk),
            "Memory" => return Ok(Self::Memory),
            "HugePages" => return Ok(Self::HugePages { page_size: None }),
            text => text.strip_prefix("HugePages-").and_then(|size| size.parse().ok()),
        };
        page_size.map(|size| Self::HugePages { page_size: Some(size) }).ok_or_else(|| {
            DecodeError::new(format_args!(
                "expected \"\", \"Memory\", \"HugePages\" or \"HugePages-<size>\", found {text:?}"
            ))
        })
    }
}

impl Encode for StorageMedium {
    fn write(&self, json: &mut Json) {
        match self {
            Self::Disk => json.string(""),
            Self::Memory => json.string("Memory"),
            Self::HugePages { page_size: None } => json.string("HugePages"),
            Self::HugePages { page_size: Some(size) } => json.raw(format_args!("\"HugePages-{size}\"")),
        }
    }

    fn omit(&self) -> bool {
        *self == Self::Disk
    }
}
