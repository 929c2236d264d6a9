//! Responses of plugins, credential providers and commands.
#![no_main]

#[path = "../checks/plugin_answers.rs"]
mod plugin_answers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| plugin_answers::check(data));
