//! The storage medium of an emptyDir. Pure.

use super::decode::{Decode, DecodeContext, DecodeError, Input, text};
use super::encode::{Encode, Json};
use super::quantity::Quantity;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StorageMedium {
    /// The node's disk.
    #[default]
    Disk,
    /// A tmpfs.
    Memory,
    /// A hugetlbfs; without a size, of the only page size that the pod requests.
    HugePages { page_size: Option<Quantity> },
    /// The API server accepts any text. A volume with this one is not set up.
    Unknown(String),
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
        Ok(page_size.map_or(Self::Unknown(text), |size| Self::HugePages { page_size: Some(size) }))
    }
}

impl Encode for StorageMedium {
    fn write(&self, json: &mut Json) {
        match self {
            Self::Disk => json.string(""),
            Self::Memory => json.string("Memory"),
            Self::HugePages { page_size: None } => json.string("HugePages"),
            Self::HugePages { page_size: Some(size) } => json.raw(format_args!("\"HugePages-{size}\"")),
            Self::Unknown(text) => json.string(text),
        }
    }

    fn omit(&self) -> bool {
        *self == Self::Disk
    }
}
