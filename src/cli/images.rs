//! `coracle images`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::command_table::ListImages;
use super::import_archives::import_archives;
use super::local_api::{RequestFailure, change_within, get, remove};
use super::outputs::ImagesOutput;
use super::table::table;
use super::{complain, failed, print};
use crate::control::server::{ImageEntry, Images};
use crate::kubelet::image_archives::{DeltaSummary, make_delta, make_file_delta};
use crate::platform::host::file;
use crate::protocol::http1::push_escaped;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

pub(super) fn run(command: &ListImages) -> ExitCode {
    let done = match command.words.split_first() {
        None => list(&command.local_socket, &command.output),
        Some((word, files)) if word == "import" => import_archives(&command.local_socket, files),
        Some((word, files)) if word == "delta" => delta(files, &command.output),
        Some((word, names)) if word == "pull" => names.iter().map(|name| pull(&command.local_socket, name)).collect(),
        Some((word, _)) if word == "prune" => prune(&command.local_socket),
        // The parser accepts no other subcommand.
        Some((_, names)) => names.iter().map(|name| remove_one(&command.local_socket, name)).collect(),
    };
    done.map_or_else(|line| failed(&line), |text| print(&text))
}

fn delta(files: &[String], output: &ImagesOutput) -> Result<String, String> {
    // The parser accepts nothing else.
    let ([old, new], ImagesOutput::File(target)) = (files, output) else { return Ok(String::new()) };
    let read = |path: &String| fs::read(path).map_err(|error| format!("{path}: {error}"));
    if is_program(old) && is_program(new) {
        let (old, new) = (read(old)?, read(new)?);
        let directory = target.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."));
        let delta = make_file_delta(&old, &new, directory).map_err(|error| error.to_string())?;
        fs::write(target, &delta).map_err(|error| format!("{}: {error}", target.display()))?;
        let bytes = |text: &[u8]| size(u64::try_from(text.len()).unwrap_or(u64::MAX));
        return Ok(format!("{}: {} for a program of {}\n", target.display(), bytes(&delta), bytes(&new)));
    }
    let made = make_delta(Path::new(old), Path::new(new), target).map_err(|error| error.to_string())?;
    let DeltaSummary { image, delta_bytes, layer_bytes, patched, whole } = made;
    let (delta, layers, target) = (size(delta_bytes), size(layer_bytes), target.display());
    Ok(format!("{target}: {delta} for {image}: {patched} layers patched, {whole} whole, {layers} in the archive\n"))
}

fn is_program(path: &str) -> bool {
    file::read_head(Path::new(path), 4).is_ok_and(|head| head == b"\x7fELF")
}

/// The runtime's images, or one line with the next step.
fn images(socket: &Path) -> Result<Images, String> {
    get(socket, "/images").map_err(|error| match error.is_of_the_agent() {
        true => format!("{}; see coracle status", ErrorChain(&error)),
        false => ErrorChain(&error).to_string(),
    })
}

/// Removes every image that no pod needs, and prints the bytes that they had.
fn prune(socket: &Path) -> Result<String, String> {
    let (mut text, mut bytes, mut kept) = (String::new(), 0_u64, 0_u32);
    for image in images(socket)?.images.iter().filter(|image| is_unused(image)) {
        let name = image.tags.first().or(image.digests.first()).unwrap_or(&image.id);
        match remove_one(socket, name) {
            Ok(line) => {
                text.push_str(&line);
                bytes = bytes.saturating_add(image.size_bytes);
            }
            Err(line) => {
                complain(&line);
                kept += 1;
            }
        }
    }
    if kept > 0 {
        print(&text);
        return Err(format!("{kept} images were not removed"));
    }
    Ok(format!("{text}{} in unused images removed\n", size(bytes)))
}

fn is_unused(image: &ImageEntry) -> bool {
    image.pods.is_empty() && !image.pinned
}

fn list(socket: &Path, output: &ImagesOutput) -> Result<String, String> {
    let mut response = images(socket)?;
    response.images.sort_once_by(|left, right| (names(left), &left.id).cmp(&(names(right), &right.id)));
    Ok(match output {
        ImagesOutput::Table | ImagesOutput::File(_) => rows(&response.images, false),
        ImagesOutput::Wide => rows(&response.images, true),
        ImagesOutput::Json => serde_json::to_string_pretty(&response).unwrap_or_default() + "\n",
    })
}

/// Waits as long as the pull takes; coracle status shows its progress.
fn pull(socket: &Path, name: &str) -> Result<String, String> {
    let mut path = "/images?image=".to_owned();
    push_escaped(&mut path, name);
    let response = change_within(IMAGE_CHANGE_TIMEOUT, socket, "POST", &path, &[]).map_err(RequestFailure::line)?;
    let id = response.get("result").and_then(Value::as_str).unwrap_or_default();
    Ok(format!("pulled {name} ({})\n", short(id)))
}

/// The agent ends a pull or a removal earlier, when the runtime does not answer.
const IMAGE_CHANGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

fn remove_one(socket: &Path, name: &str) -> Result<String, String> {
    let mut path = "/images?image=".to_owned();
    push_escaped(&mut path, name);
    let id = remove(IMAGE_CHANGE_TIMEOUT, socket, &path).map_err(|error| ErrorChain(&error).to_string())?;
    Ok(format!("removed {name} ({})\n", short(&id)))
}

/// One row per tag; an image without tags is listed by its digest.
fn rows(images: &[ImageEntry], wide: bool) -> String {
    if images.is_empty() {
        return "No images.\n".to_owned();
    }
    let more: &[&str] = if wide { &["DIGEST"] } else { &[] };
    let head = ["IMAGE", "ID", "SIZE", "USED BY"].iter().chain(more);
    let mut rows: Vec<Vec<String>> = vec![head.map(|&name| name.to_owned()).collect()];
    for image in images {
        let digest = image.digests.first().map_or("<none>", |name| name.split('@').next_back().unwrap_or_default());
        let users = users(image, wide);
        for name in names(image) {
            let mut row = vec![name.to_owned(), short(&image.id), size(image.size_bytes), users.clone()];
            if wide {
                row.push(digest.to_owned());
            }
            rows.push(row);
        }
    }
    table(&rows)
}

fn names(image: &ImageEntry) -> Vec<&str> {
    match (image.tags.as_slice(), image.digests.first()) {
        ([], None) => vec!["<none>"],
        ([], Some(digest)) => vec![digest],
        (tags, _) => tags.iter().map(String::as_str).collect(),
    }
}

fn users(image: &ImageEntry, is_all: bool) -> String {
    let pinned = image.pinned.then_some("(pinned)");
    let users: Vec<&str> = pinned.into_iter().chain(image.pods.iter().map(String::as_str)).collect();
    match users.as_slice() {
        [] => "<none>".to_owned(),
        [first, second, third, rest @ ..] if !is_all && !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        users => users.join(", "),
    }
}

/// Shortened like docker's ids.
fn short(id: &str) -> String {
    id.trim().trim_start_matches("sha256:").chars().take(12).collect()
}

/// In decimal units, like registries.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        1_000_000_000.. => format!("{}.{}GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10),
        1_000_000.. => format!("{}.{}MB", bytes / 1_000_000, bytes / 100_000 % 10),
        1_000.. => format!("{}kB", bytes / 1_000),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(tags: &[&str], pods: &[&str]) -> ImageEntry {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let id = "sha256:0123456789abcdef".to_owned();
        let digests = vec!["a@sha256:beef".to_owned()];
        ImageEntry { id, tags: owned(tags), digests, size_bytes: 4_260_000, pinned: false, pods: owned(pods) }
    }

    #[test]
    fn images_of_pods_and_pinned_ones_are_in_use() {
        assert!(is_unused(&image(&["a:1"], &[])));
        assert!(!is_unused(&image(&["a:1"], &["x/a"])));
        assert!(!is_unused(&ImageEntry { pinned: true, ..image(&["a:1"], &[]) }));
    }

    #[test]
    fn image_has_a_row_per_name_with_its_pods() {
        let pods = ["x/a", "x/b", "x/c", "x/d", "x/e"];
        let images = [image(&["a:1", "a:2"], &pods), ImageEntry { pinned: true, ..image(&[], &[]) }];
        let text = "\
IMAGE           ID             SIZE    USED BY
a:1             0123456789ab   4.2MB   x/a, x/b, x/c and 2 more
a:2             0123456789ab   4.2MB   x/a, x/b, x/c and 2 more
a@sha256:beef   0123456789ab   4.2MB   (pinned)
";
        assert_eq!(rows(&images, false), text);
        let wide = rows(&images, true);
        assert!(wide.contains("   x/a, x/b, x/c, x/d, x/e   sha256:beef\n"), "{wide}");
        assert_eq!(rows(&[], false), "No images.\n");
        let nameless = ImageEntry { digests: vec![], ..image(&[], &[]) };
        assert!(rows(&[nameless], true).ends_with("\n<none>   0123456789ab   4.2MB   <none>    <none>\n"));
    }

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 999, 1_000, 999_999, 1_250_000, 12_345_678_901].map(size);
        assert_eq!(sizes, ["0B", "999B", "1kB", "999kB", "1.2MB", "12.3GB"]);
    }
}
