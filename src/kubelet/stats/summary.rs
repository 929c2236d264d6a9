//! The response of `/stats/summary`: the kubelet's Summary v1alpha1. Pure.

use super::json_text::JsonText;
use super::snapshot::{ContainerSnapshot, DiskUsage, FileSystem, NodeSnapshot, PodSnapshot, Snapshot, UsageStats};
use crate::platform::host::procfs::{Interface, Pressure, Stall};
use crate::types::api::Time;

/// `only_cpu_and_memory`: upstream's query parameter of this name.
pub(super) fn summary(snapshot: &Snapshot, only_cpu_and_memory: bool) -> Vec<u8> {
    let mut writer = Writer { json: JsonText::default(), brief: only_cpu_and_memory, time: (i64::MIN, String::new()) };
    writer.summary(snapshot);
    writer.json.into_bytes()
}

struct Writer {
    json: JsonText,
    brief: bool,
    /// The last formatted second; most timestamps are equal.
    time: (i64, String),
}

impl Writer {
    fn object(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.json.begin(name, '{');
        write(self);
        self.json.end('}');
    }

    fn list(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.json.begin(name, '[');
        write(self);
        self.json.end(']');
    }

    fn summary(&mut self, snapshot: &Snapshot) {
        self.object("", |this| {
            this.object("node", |this| this.node(&snapshot.node, snapshot.at));
            this.list("pods", |this| {
                for pod in &snapshot.pods {
                    this.object("", |this| this.pod(pod, &snapshot.node, snapshot.at));
                }
            });
        });
    }

    fn node(&mut self, node: &NodeSnapshot, at: i64) {
        self.json.string("nodeName", &node.name);
        self.list("systemContainers", |this| {
            this.object("", |this| {
                this.json.string("name", "pods");
                this.time("startTime", node.booted_at);
                this.figures(&node.pods);
            });
            for container in &node.system {
                this.object("", |this| {
                    this.json.string("name", container.name);
                    this.time("startTime", container.started_at.unwrap_or(node.booted_at));
                    this.figures(&container.figures);
                });
            }
        });
        self.time("startTime", node.booted_at);
        self.usage(&node.figures);
        if self.brief {
            return;
        }
        self.io(&node.figures);
        self.network(&node.interfaces, &node.main_interface, at);
        if let Some(disk) = &node.disk {
            let inodes = disk.inodes.saturating_sub(disk.inodes_free);
            self.disk("fs", at, disk, DiskUsage { bytes: disk.used, inodes });
        }
        self.object("runtime", |this| {
            if let Some((disk, usage)) = &node.images {
                this.disk("imageFs", at, disk, *usage);
            }
            if let Some((disk, usage)) = node.layers.as_ref().or(node.images.as_ref()) {
                this.disk("containerFs", at, disk, *usage);
            }
        });
        if let Some((now, most)) = node.tasks {
            self.object("rlimit", |this| {
                this.time("time", at);
                this.json.number("maxpid", most);
                this.json.number("curproc", now);
            });
        }
        self.swap(&node.figures);
    }

    fn pod(&mut self, pod: &PodSnapshot, node: &NodeSnapshot, at: i64) {
        self.object("podRef", |this| {
            this.json.string("name", &pod.name);
            this.json.string("namespace", &pod.namespace);
            this.json.string("uid", &pod.uid);
        });
        self.time("startTime", pod.started_at.unwrap_or(at));
        self.list("containers", |this| {
            for container in &pod.containers {
                this.object("", |this| this.container(container, node, at));
            }
        });
        self.usage(&pod.figures);
        if self.brief {
            return;
        }
        self.io(&pod.figures);
        let main = if pod.interfaces.iter().any(|interface| interface.name == "eth0") { "eth0" } else { "" };
        let main = pod.interfaces.first().filter(|_| main.is_empty()).map_or(main, |first| &first.name);
        self.network(&pod.interfaces, main, at);
        if !pod.volumes.is_empty() {
            self.list("volume", |this| {
                for volume in &pod.volumes {
                    this.object("", |this| {
                        this.disk_fields(volume.at, &volume.disk, volume.used);
                        this.json.string("name", &volume.name);
                        if let Some(claim) = &volume.claim {
                            this.object("pvcRef", |this| {
                                this.json.string("name", claim);
                                this.json.string("namespace", &pod.namespace);
                            });
                        }
                    });
                }
            });
        }
        if let Some(disk) = &node.disk {
            self.disk("ephemeral-storage", at, disk, pod.storage());
        }
        if let Some(processes) = pod.processes {
            self.object("process_stats", |this| this.json.number("process_count", processes));
        }
        self.swap(&pod.figures);
    }

    fn container(&mut self, container: &ContainerSnapshot, node: &NodeSnapshot, at: i64) {
        self.json.string("name", &container.name);
        self.time("startTime", container.started_at);
        self.usage(&container.figures);
        if self.brief {
            return;
        }
        self.io(&container.figures);
        if let (Some((disk, _)), Some(layer)) = (node.layers.as_ref().or(node.images.as_ref()), container.layer) {
            self.disk("rootfs", at, disk, layer);
        }
        if let (Some(disk), Some(logs)) = (&node.disk, container.logs) {
            self.disk("logs", at, disk, logs);
        }
        self.swap(&container.figures);
    }

    fn figures(&mut self, figures: &UsageStats) {
        self.usage(figures);
        if !self.brief {
            self.io(figures);
            self.swap(figures);
        }
    }

    fn usage(&mut self, figures: &UsageStats) {
        if figures.cpu_nanos.is_some() {
            self.object("cpu", |this| {
                this.time("time", figures.at);
                this.json.number("usageNanoCores", figures.nano_cores);
                this.json.number("usageCoreNanoSeconds", figures.cpu_nanos);
                this.pressure(figures.cpu_pressure.as_ref());
            });
        }
        let memory = &figures.memory;
        if memory.working_set.is_some() {
            self.object("memory", |this| {
                this.time("time", figures.at);
                this.json.number("availableBytes", memory.available);
                this.json.number("usageBytes", memory.usage);
                this.json.number("workingSetBytes", memory.working_set);
                this.json.number("rssBytes", memory.rss);
                this.json.number("pageFaults", memory.page_faults);
                this.json.number("majorPageFaults", memory.major_page_faults);
                this.pressure(figures.memory_pressure.as_ref());
            });
        }
    }

    fn io(&mut self, figures: &UsageStats) {
        if figures.at != 0 {
            self.object("io", |this| {
                this.time("time", figures.at);
                this.pressure(figures.io_pressure.as_ref());
            });
        }
    }

    fn swap(&mut self, figures: &UsageStats) {
        if figures.swap_used.is_some() {
            self.object("swap", |this| {
                this.time("time", figures.at);
                this.json.number("swapAvailableBytes", figures.swap_available);
                this.json.number("swapUsageBytes", figures.swap_used);
            });
        }
    }

    fn pressure(&mut self, pressure: Option<&Pressure>) {
        let Some(pressure) = pressure else { return };
        self.object("psi", |this| {
            // Older kernels have no `full` line for CPU; it would be zero.
            this.stall("full", pressure.full.as_ref().unwrap_or(&Stall::default()));
            this.stall("some", &pressure.some);
        });
    }

    fn stall(&mut self, name: &str, stall: &Stall) {
        self.object(name, |this| {
            this.json.number("total", stall.total_usec.saturating_mul(1000));
            this.json.hundredths("avg10", stall.avg10_percent_hundredths);
            this.json.hundredths("avg60", stall.avg60_percent_hundredths);
            this.json.hundredths("avg300", stall.avg300_percent_hundredths);
        });
    }

    /// The top-level fields are those of the interface `main`, if it exists.
    fn network(&mut self, interfaces: &[Interface], main: &str, at: i64) {
        if interfaces.is_empty() {
            return;
        }
        self.object("network", |this| {
            this.time("time", at);
            if let Some(main) = interfaces.iter().find(|figures| figures.name == main) {
                this.interface(main);
            }
            this.list("interfaces", |this| {
                for interface in interfaces {
                    this.object("", |this| this.interface(interface));
                }
            });
        });
    }

    fn interface(&mut self, interface: &Interface) {
        self.json.string("name", &interface.name);
        self.json.number("rxBytes", interface.received.bytes);
        self.json.number("rxErrors", interface.received.errors);
        self.json.number("txBytes", interface.sent.bytes);
        self.json.number("txErrors", interface.sent.errors);
    }

    fn disk(&mut self, name: &str, at: i64, disk: &FileSystem, used: DiskUsage) {
        self.object(name, |this| this.disk_fields(at, disk, used));
    }

    fn disk_fields(&mut self, at: i64, disk: &FileSystem, used: DiskUsage) {
        self.time("time", at);
        self.json.number("availableBytes", disk.available);
        self.json.number("capacityBytes", disk.capacity);
        self.json.number("usedBytes", used.bytes);
        self.json.number("inodesFree", disk.inodes_free);
        self.json.number("inodes", disk.inodes);
        self.json.number("inodesUsed", used.inodes);
    }

    fn time(&mut self, name: &str, at: i64) {
        let second = at.div_euclid(1_000_000_000);
        if self.time.0 != second {
            self.time = (second, Time::from_unix_nanos(at).to_string());
        }
        self.json.string(name, &self.time.1);
    }
}
