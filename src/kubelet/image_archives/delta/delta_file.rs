//! A delta on the disk.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;

use super::DELTA_MAGIC;
use super::description::{Description, Section};
use crate::kubelet::image_archives::archive_list::Failure;
use crate::kubelet::image_archives::import::unusable;

#[derive(Debug)]
pub(in crate::kubelet::image_archives) struct DeltaFile {
    pub(super) file: File,
    pub(super) description: Description,
}

/// Size limit of the description.
const MAX_DELTA_DESCRIPTION_BYTES: u64 = 8 << 20;

impl DeltaFile {
    /// `None` if the file is no delta. Blocks.
    pub(in crate::kubelet::image_archives) fn open(file: File) -> Result<Option<Self>, Failure> {
        let mut magic = [0; DELTA_MAGIC.len()];
        match file.read_exact_at(&mut magic, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map_err(unusable)?,
        }
        if magic != *DELTA_MAGIC {
            return Ok(None);
        }
        let begin = u64::try_from(DELTA_MAGIC.len()).unwrap_or_default();
        let file_length = file.metadata().map_err(unusable)?.len();
        let damaged = || Failure::Refused("it is cut short or damaged".to_owned());
        let mut length = [0; 8];
        let end = file_length.checked_sub(8).ok_or_else(damaged)?;
        file.read_exact_at(&mut length, end).map_err(unusable)?;
        let length = u64::from_be_bytes(length);
        let at = end
            .checked_sub(length)
            .filter(|at| *at >= begin && length <= MAX_DELTA_DESCRIPTION_BYTES)
            .ok_or_else(damaged)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, at).map_err(unusable)?;
        let description = Description::parse(&bytes, begin, at).ok_or_else(damaged)?;
        Ok(Some(Self { file, description }))
    }

    pub(in crate::kubelet::image_archives) fn names(&self) -> &[String] {
        &self.description.names
    }

    pub(super) fn reader(&self, section: Section) -> SectionReader<'_> {
        SectionReader { file: &self.file, at: section.at, end: section.at.saturating_add(section.length) }
    }
}

#[derive(Debug)]
pub(super) struct SectionReader<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for SectionReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(out.len());
        let count = self.file.read_at(out.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += u64::try_from(count).unwrap_or_default();
        Ok(count)
    }
}
