//! Writes JSON text directly. Pure.

/// Writes names and values in the order of the calls; unknown values are left out.
#[derive(Debug, Default)]
pub(super) struct JsonText {
    text: String,
    /// The current list or object already has an element.
    follows: bool,
}

impl JsonText {
    /// Starts an object or list, given by `bracket`. `name` is empty for list items and the top level.
    pub(super) fn begin(&mut self, name: &str, bracket: char) {
        self.name(name);
        self.text.push(bracket);
        self.follows = false;
    }

    pub(super) fn end(&mut self, bracket: char) {
        self.text.push(bracket);
        self.follows = true;
    }

    pub(super) fn number(&mut self, name: &str, value: impl Into<Option<u64>>) {
        if let Some(value) = value.into() {
            self.name(name);
            self.text.push_str(&value.to_string());
        }
    }

    /// A value given in hundredths.
    pub(super) fn hundredths(&mut self, name: &str, value: u32) {
        self.name(name);
        let (whole, part) = (value / 100, value % 100);
        let shown = if part == 0 { whole.to_string() } else { format!("{whole}.{part:02}") };
        self.text.push_str(&shown);
    }

    pub(super) fn string(&mut self, name: &str, value: &str) {
        self.name(name);
        self.quoted(value);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }

    fn name(&mut self, name: &str) {
        if std::mem::replace(&mut self.follows, true) {
            self.text.push(',');
        }
        if !name.is_empty() {
            self.quoted(name);
            self.text.push(':');
        }
    }

    fn quoted(&mut self, text: &str) {
        // A string can always be encoded.
        self.text.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_parses_as_the_written_json() {
        let mut json = JsonText::default();
        json.begin("", '{');
        json.string("a", "x\"y\n");
        json.number("none", None);
        json.begin("list", '[');
        for number in [205, 300] {
            json.begin("", '{');
            json.number("n", 1u64);
            json.hundredths("h", number);
            json.end('}');
        }
        json.end(']');
        json.begin("empty", '{');
        json.end('}');
        json.number("last", u64::MAX);
        json.end('}');
        let text = String::from_utf8(json.into_bytes()).unwrap();
        let expected =
            r#"{"a":"x\"y\n","list":[{"n":1,"h":2.05},{"n":1,"h":3}],"empty":{},"last":18446744073709551615}"#;
        assert_eq!(text, expected);
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
}
