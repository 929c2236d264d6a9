//! docs/configuration.md names every field and flag, and no other.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::flag_effect::FlagEffect;
use super::super::flag_table::FLAGS;
use super::super::schema::{
    CORACLE_FILE, CREDENTIAL_PROVIDER_CONFIG, Field, FieldSupport, KUBELET_CONFIGURATION, Kind,
};
use super::super::{CgroupDriver, ConfiguredFields};

const PAGE: &str = include_str!("../../../../docs/configuration.md");
const NO_EFFECT: &str = "**no effect**";
const REFUSED: &str = "**refused**";

struct Row {
    default: String,
    effect: String,
}

/// The table rows of a section, by the name in their first cell.
#[track_caller]
fn rows_of(heading: &str) -> BTreeMap<String, Row> {
    let mut sections = PAGE.split("\n## ");
    let section = sections.find(|section| section.lines().next() == Some(heading)).unwrap();
    let mut rows = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, default, effect] = cells[..] else { panic!("three cells expected: {line}") };
        let name = name.trim_matches('`').to_owned();
        let row = Row { default: default.trim_matches('`').to_owned(), effect: effect.to_owned() };
        assert!(rows.insert(name, row).is_none(), "twice: {line}");
    }
    rows
}

/// The fields that hold values, by their dotted paths.
fn leaves(prefix: &str, fields: &[Field], out: &mut BTreeMap<String, FieldSupport>) {
    for field in fields {
        let path = format!("{prefix}{}", field.name);
        match &field.kind {
            Kind::Object(inner) | Kind::Options(inner) | Kind::List(Kind::Object(inner)) => {
                let list = if matches!(field.kind, Kind::List(_)) { "[]" } else { "" };
                leaves(&format!("{path}{list}."), inner, out);
            }
            _ => drop(out.insert(path, field.standing)),
        }
    }
}

#[track_caller]
fn check_effect(name: &str, standing: FieldSupport, effect: &str) {
    let expected = match standing {
        FieldSupport::InForce => (false, false),
        FieldSupport::NotYet | FieldSupport::Moot | FieldSupport::OnlyTrue => (true, false),
        FieldSupport::Refused => (false, true),
    };
    assert_eq!((effect.contains(NO_EFFECT), effect.contains(REFUSED)), expected, "{name}: {effect}");
}

#[track_caller]
fn check_fields(heading: &str, fields: &[Field]) {
    let mut expected = BTreeMap::new();
    leaves("", fields, &mut expected);
    let rows = rows_of(heading);
    assert_eq!(rows.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{heading}");
    for (name, standing) in &expected {
        check_effect(name, *standing, &rows[name].effect);
    }
}

#[test]
fn configuration_page_lists_every_field_and_no_other() {
    check_fields("KubeletConfiguration", KUBELET_CONFIGURATION);
    check_fields("coracle.yaml", CORACLE_FILE);
    check_fields("CredentialProviderConfig", CREDENTIAL_PROVIDER_CONFIG);
}

/// Name, default and effect, from the texts that the build script collects.
const FLAG_TEXTS: &str = include_str!(concat!(env!("OUT_DIR"), "/flags.tsv"));

fn flag_row(name: &str, flag: &FlagEffect, fields: &BTreeMap<String, FieldSupport>) -> String {
    let (default, effect) = match flag {
        FlagEffect::Field(path) => {
            // Flags for a whole object have no standing of their own.
            let without = match fields.get(*path).copied().unwrap_or(FieldSupport::InForce) {
                FieldSupport::InForce => String::new(),
                FieldSupport::NotYet | FieldSupport::Moot | FieldSupport::OnlyTrue => format!(": {NO_EFFECT}"),
                FieldSupport::Refused => format!(": {REFUSED}"),
            };
            ("–", format!("sets `{path}`{without}"))
        }
        FlagEffect::Path(_) | FlagEffect::Switch(_) | FlagEffect::Own(..) | FlagEffect::Refused(_) => {
            let mut texts = FLAG_TEXTS.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
            let (default, effect) = texts.next().and_then(|texts| texts.split_once('\t')).expect(name);
            (default, effect.to_owned())
        }
        FlagEffect::NotYet(_) => ("–", NO_EFFECT.to_owned()),
        FlagEffect::Gone(_, reason) => ("–", format!("{NO_EFFECT}: {reason}")),
    };
    format!("| `--{name}` | {default} | {effect} |\n")
}

/// `UPDATE_GOLDEN=1 cargo test --lib config` writes the table.
#[test]
fn configuration_page_has_the_table_of_flags() {
    let mut fields = BTreeMap::new();
    leaves("", KUBELET_CONFIGURATION, &mut fields);
    let rows: BTreeMap<&str, String> =
        FLAGS.iter().map(|(name, effect)| (*name, flag_row(name, effect, &fields))).collect();
    let rows: String = rows.into_values().collect();
    let (before, table) = PAGE.split_once("| flag | default | effect |\n|---|---|---|\n").unwrap();
    let after: String = table.split_inclusive('\n').skip_while(|line| line.starts_with('|')).collect();
    let page = format!("{before}| flag | default | effect |\n|---|---|---|\n{rows}{after}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md"), page).unwrap();
    } else {
        assert!(page == PAGE, "docs/configuration.md is out of date: UPDATE_GOLDEN=1 cargo test --lib config");
    }
}

#[test]
fn configuration_page_shows_the_defaults_of_configz() {
    let page: Value =
        serde_json::from_slice(&ConfiguredFields::new(&Map::new(), Vec::new()).page(CgroupDriver::Cgroupfs)).unwrap();
    let mut standings = BTreeMap::new();
    leaves("", KUBELET_CONFIGURATION, &mut standings);
    let rows = rows_of("KubeletConfiguration");
    for (name, _) in standings.iter().filter(|(_, standing)| **standing == FieldSupport::InForce) {
        let default = match &page["kubeletconfig"].pointer(&format!("/{}", name.replace('.', "/"))) {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => continue,
        };
        assert_eq!(rows[name].default, default, "{name}");
    }
}
