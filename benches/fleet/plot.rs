//! Draws requests per second as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 44.0;

/// `outages` have a name, a first second and a last second.
pub(crate) fn draw(counts: &[usize], level: f64, outages: &[(&str, usize, usize)]) -> String {
    let highest = counts.iter().copied().max().unwrap_or_default() as f64;
    let top = (highest.max(level * 2.0) * 1.1).ceil();
    let x = |second: usize| LEFT + (WIDTH - LEFT - 12.0) * second as f64 / counts.len() as f64;
    let y = |rate: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 16.0) * rate / top;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    for (name, from, to) in outages {
        let (from, to) = (x(*from), x(*to));
        let (width, middle) = (to - from, from.midpoint(to));
        let height = HEIGHT - BOTTOM - 16.0;
        writeln!(svg, "<rect x=\"{from:.1}\" y=\"16\" width=\"{width:.1}\" height=\"{height}\" fill=\"#eee\"/>")
            .unwrap();
        writeln!(svg, "<text x=\"{middle:.1}\" y=\"32\" text-anchor=\"middle\" fill=\"#555\">{name}</text>").unwrap();
    }
    for (what, rate) in [("rest", level), ("twice", level * 2.0)] {
        let (y, right) = (y(rate), WIDTH - 12.0);
        writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#c33\" stroke-dasharray=\"5 4\" fill=\"none\"/>")
            .unwrap();
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#c33\">{what}</text>",
            LEFT - 4.0,
            y + 4.0
        )
        .unwrap();
    }
    let points: Vec<String> =
        counts.iter().enumerate().map(|(second, count)| format!("{:.1},{:.1}", x(second), y(*count as f64))).collect();
    writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"#246\"/>", points.join(" ")).unwrap();
    for second in (0..counts.len()).step_by(60) {
        writeln!(svg, "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{second} s</text>", x(second), HEIGHT - 24.0)
            .unwrap();
    }
    writeln!(svg, "<text x=\"{LEFT}\" y=\"12\">requests a second at the API server (rest: {level:.0})</text>").unwrap();
    svg + "</svg>\n"
}
