//! Output formats and shells as arguments. Pure.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::json_path::JsonPath;

/// Defines an enum with a word for each variant.
macro_rules! words {
    ($name:ident, $expected:literal: $($word:literal => $variant:ident),+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name {
            $($variant),+
        }

        impl FromStr for $name {
            type Err = Unknown;

            fn from_str(word: &str) -> Result<Self, Unknown> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(Unknown($expected)),
                }
            }
        }
    };
}

words!(Shell, "bash, zsh or fish": "bash" => Bash, "zsh" => Zsh, "fish" => Fish);
words!(StatusOutput, "json or yaml": "text" => Text, "json" => Json, "yaml" => Yaml);
words!(TopOutput, "json": "table" => Table, "json" => Json);
words!(VersionOutput, "json": "text" => Text, "json" => Json);

words!(CgroupDriverName, "cgroupfs or systemd": "cgroupfs" => Cgroupfs, "systemd" => Systemd);
words!(RuntimeName, "containerd or crio": "containerd" => Containerd, "crio" => Crio);

impl RuntimeName {
    /// The name of its program and its service.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Crio => "crio",
        }
    }

    /// Its name in the CRI.
    pub(super) fn cri_name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Crio => "cri-o",
        }
    }
}

/// A format of the list of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodsOutput {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
    JsonPath(JsonPath),
}

impl FromStr for PodsOutput {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if let Some(path) = word.strip_prefix("jsonpath=") {
            return path.parse().map(Self::JsonPath);
        }
        Ok(match word {
            "table" => Self::Table,
            "wide" => Self::Wide,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            "name" => Self::Name,
            _ => return Err("expected wide, json, yaml, name or jsonpath=PATH".to_owned()),
        })
    }
}

/// A format of the list of images, or the file of a delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImagesOutput {
    Table,
    Wide,
    Json,
    File(PathBuf),
}

impl FromStr for ImagesOutput {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<Self, Infallible> {
        Ok(match word {
            "table" => Self::Table,
            "wide" => Self::Wide,
            "json" => Self::Json,
            file => Self::File(file.into()),
        })
    }
}

/// The accepted words.
#[derive(Debug)]
pub(super) struct Unknown(&'static str);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}
