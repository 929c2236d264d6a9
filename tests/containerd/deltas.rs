//! Deltas of images, imported into a real containerd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::node::{BUSYBOX, Manifest, Node, STAY, coracle, images};
use super::registry::{Proxy, Registry, Way};

/// Writes a docker-archive with busybox's layer and one of `content` in a file.
fn archive(node: &Node, image: &str, content: &[u8]) -> PathBuf {
    let work = node.folder().join("archive");
    fs::create_dir_all(work.join("root")).unwrap();
    fs::write(work.join("root/content"), content).unwrap();
    let path = node.folder().join(format!("{}.tar", image.rsplit(['/', ':']).next().unwrap()));
    let script = format!(
        r#"cd {work} && tar -xf {busybox} && tar --mtime=@0 -cf app.tar -C root content &&
        python3 - <<'END'
import hashlib, json
manifest = json.load(open('manifest.json'))[0]
config = json.load(open(manifest['Config']))
config['rootfs']['diff_ids'].append('sha256:' + hashlib.sha256(open('app.tar', 'rb').read()).hexdigest())
config.pop('history', None)
json.dump(config, open('app.json', 'w'))
manifest.update(Config='app.json', RepoTags=['{image}'], Layers=manifest['Layers'] + ['app.tar'])
json.dump([manifest], open('manifest.json', 'w'))
open('files', 'w').write('\n'.join(['app.json', 'manifest.json'] + manifest['Layers']))
END
        tar -cf {path} -T files"#,
        work = work.display(),
        busybox = images().join("busybox.tar").display(),
        path = path.display(),
    );
    let made = Command::new("bash").args(["-ec", &script]).status().unwrap();
    assert!(made.success(), "the archive of {image} could not be made");
    fs::remove_dir_all(&work).unwrap();
    path
}

fn delta(node: &Node, old: &Path, new: &Path) -> PathBuf {
    let path = new.with_extension("delta");
    let [old, new, target] = [old, new, &path].map(|path| path.display().to_string());
    node.ask(&["images", "delta", &old, &new, "-o", &target]).expect("a delta");
    path
}

/// Content that does not compress, and the same with some bytes changed.
fn contents() -> [Vec<u8>; 3] {
    let mut state = 7_u64;
    let first: Vec<u8> = (0..3_000_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u8::try_from(state >> 56).unwrap()
        })
        .collect();
    let changed = |bytes: &[u8], step: usize| {
        let mut bytes = bytes.to_vec();
        bytes.iter_mut().step_by(step).for_each(|byte| *byte ^= 0x55);
        bytes
    };
    let second = changed(&first, 10_000);
    let third = changed(&second, 7_000);
    [first, second, third]
}

fn manifest(name: &str, image: &str) -> String {
    Manifest::new(name).container_with("main", STAY, "imagePullPolicy: Never").text().replace(BUSYBOX, image)
}

fn wait_for_content(node: &Node, name: &str, content: &[u8]) {
    node.wait_until(&format!("{name} is ready"), |pods| pods.has(name, |pod| pod.is_ready()));
    let socket = node.folder().join("coracle.sock");
    let mut exec = Command::new(coracle());
    exec.arg("exec").arg("--local-socket").arg(socket).args([name, "--", "sha256sum", "/content"]);
    let sum = String::from_utf8(exec.output().unwrap().stdout).unwrap();
    let file = node.folder().join("expected");
    fs::write(&file, content).unwrap();
    let expected = Command::new("sha256sum").arg(&file).output().unwrap().stdout;
    assert_eq!(sum.split(' ').next(), String::from_utf8(expected).unwrap().split(' ').next(), "{name}");
}

#[test]
fn containers_run_images_rebuilt_from_deltas() {
    if Node::is_on_crio() {
        eprintln!("not run: deltas need containerd");
        return;
    }
    let node = Node::start();
    let [first, second, third] = contents();
    let names = ["localhost/app:first", "localhost/app:second", "localhost/app:third"];
    let archives = [&first, &second, &third];
    let archives: Vec<PathBuf> =
        names.iter().zip(archives).map(|(name, content)| archive(&node, name, content)).collect();
    let [first_archive, second_archive, third_archive] = &archives[..] else { unreachable!() };
    let second_delta = delta(&node, first_archive, second_archive);
    let third_delta = delta(&node, second_archive, third_archive);
    for delta in [&second_delta, &third_delta] {
        let bytes = fs::metadata(delta).unwrap().len();
        assert!(bytes < 30_000, "{} has {bytes} bytes", delta.display());
    }

    let import = |file: &Path| node.ask(&["images", "import", &file.display().to_string()]);
    assert_eq!(import(&second_delta), None);
    let refused = node.ask(&["status", "-o", "json"]).unwrap();
    assert!(refused.contains("needs image localhost/app:first (config sha256:"), "{refused}");
    assert!(refused.contains("), which the node does not have"), "{refused}");

    // The delta that waits is imported after the image that it needs.
    assert_eq!(import(first_archive).unwrap(), "localhost/app:first\n");
    node.write_manifest("second", &manifest("second", names[1]));
    wait_for_content(&node, "second", &second);
    // A rebuilt image is as good as another one.
    assert_eq!(import(&third_delta).unwrap(), "localhost/app:third\n");
    node.write_manifest("third", &manifest("third", names[2]));
    wait_for_content(&node, "third", &third);

    // The image ID is the digest of the archive's configuration.
    let script = format!("tar -xOf {} app.json | sha256sum", third_archive.display());
    let expected = Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
    let expected = format!("sha256:{}", String::from_utf8(expected).unwrap().split(' ').next().unwrap());
    let list: serde_json::Value = serde_json::from_str(&node.ask(&["images", "-o", "json"]).unwrap()).unwrap();
    let images = list["images"].as_array().unwrap();
    let third = images.iter().find(|image| image["tags"].as_array().unwrap().iter().any(|tag| tag == names[2]));
    assert_eq!(third.expect("the image is listed")["id"], expected);
}

#[test]
fn image_of_a_registry_is_updated_by_a_delta() {
    if Node::is_on_crio() {
        eprintln!("not run: deltas need containerd");
        return;
    }
    let node = Node::start();
    let [first, second, _] = contents();
    let archives = [("localhost/app:first", &first), ("localhost/app:second", &second)];
    let archives = archives.map(|(name, content)| archive(&node, name, content));
    // As a registry has it: with packed layers.
    node.ctr(&["images", "import", "--compress-blobs", &archives[0].display().to_string()]);
    let registry = Registry::start(&node);
    let image = registry.push(&node, "localhost/app:first", "app:first");
    node.remove_image("localhost/app:first");
    let proxy = Proxy::start(&node, &registry, Way::Open);
    let image = proxy.name(&registry, &image);
    node.write_manifest("first", &manifest("first", &image).replace("Never", "IfNotPresent"));
    wait_for_content(&node, "first", &first);

    let delta = delta(&node, &archives[0], &archives[1]);
    node.ask(&["images", "import", &delta.display().to_string()]).unwrap();
    node.write_manifest("second", &manifest("second", "localhost/app:second"));
    wait_for_content(&node, "second", &second);
}
