//! `coracle devices`.

use std::path::Path;
use std::process::ExitCode;

use super::command_table::ListDevices;
use super::local_api::get;
use super::outputs::TopOutput;
use super::table::table;
use super::{failed, print};
use crate::control::server::{DeviceEntries, DeviceEntry};
use crate::types::error::ErrorChain;

pub(super) fn run(command: &ListDevices) -> ExitCode {
    list(&command.local_socket, command.output).map_or_else(|line| failed(&line), |text| print(&text))
}

fn list(socket: &Path, output: TopOutput) -> Result<String, String> {
    let response: DeviceEntries = get(socket, "/devices").map_err(|error| ErrorChain(&error).to_string())?;
    Ok(match output {
        TopOutput::Table => rows(&response.devices),
        TopOutput::Json => serde_json::to_string_pretty(&response).unwrap_or_default() + "\n",
    })
}

fn rows(devices: &[DeviceEntry]) -> String {
    if devices.is_empty() {
        return "No devices.\n".to_owned();
    }
    let head = ["RESOURCE", "DEVICE", "USED BY", "ATTRIBUTES"];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    for device in devices {
        let user = if device.used_by.is_empty() { "<none>" } else { &device.used_by };
        let unhealthy = if device.healthy { "" } else { " (unhealthy)" };
        let attributes: Vec<String> = device
            .attributes
            .iter()
            .map(|(name, value)| [name, "=", value.as_str().unwrap_or_default()].concat())
            .collect();
        rows.push(vec![
            device.resource.clone(),
            [&device.device, unhealthy].concat(),
            user.to_owned(),
            attributes.join(", "),
        ]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_has_a_row_with_its_user_and_attributes() {
        let pairs = [("bus", "usb"), ("model", "HD Webcam")];
        let used = DeviceEntry {
            resource: "example.com/camera".to_owned(),
            device: "/dev/video0".to_owned(),
            healthy: true,
            attributes: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect(),
            used_by: "default/web-node1/main".to_owned(),
        };
        let free = DeviceEntry { device: "gpu-1".to_owned(), resource: "example.com/gpu".to_owned(), ..<_>::default() };
        let text = "\
RESOURCE             DEVICE              USED BY                  ATTRIBUTES
example.com/camera   /dev/video0         default/web-node1/main   bus=usb, model=HD Webcam
example.com/gpu      gpu-1 (unhealthy)   <none>
";
        assert_eq!(rows(&[used, free]), text);
        assert_eq!(rows(&[]), "No devices.\n");
    }
}
