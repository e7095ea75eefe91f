//! The curves of a profile as a picture (SVG): bytes a second by workers, reads and writes beside
//! each other, a mark where more workers stop being useful. As figure 1 of the Keigo paper.

use std::fmt::Write;
use std::path::Path;
use thermocline_device::profile::{Access, Point, Shape};
use thermocline_device::{Curve, DeviceProfile};
use thermocline_foundation::ByteSize;

const PANEL_WIDTH: f64 = 360.0;
const PANEL_HEIGHT: f64 = 240.0;
/// Beside the left axis and above the plot.
const LEFT: f64 = 90.0;
const TOP: f64 = 60.0;
const PANEL_STEP: f64 = PANEL_WIDTH + LEFT + 30.0;
const LEGEND_LINE: f64 = 18.0;
/// Where workers end on the axis: 2 to this power.
const DOUBLINGS_MIN: f64 = 6.0;
const COLOURS: [&str; 8] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"];

/// The picture; `path` is its title.
pub fn svg(path: &Path, profile: &DeviceProfile) -> String {
    let panels = [(Access::Read, "Reads"), (Access::Write, "Writes")].map(|(access, title)| {
        let curves = profile.curves.iter().filter(|(shape, _)| shape.access == access);
        (title, curves.collect::<Vec<_>>())
    });
    let lines = panels.iter().map(|(_, curves)| curves.len()).max().unwrap_or(0) as f64;
    let (width, height) = (PANEL_STEP * 2.0, TOP + PANEL_HEIGHT + 60.0 + lines * LEGEND_LINE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"20\" y=\"24\" font-size=\"15\">{}: throughput by workers</text>\n",
        escaped(&path.display().to_string())
    );
    for (index, (title, curves)) in panels.iter().enumerate() {
        panel(&mut out, LEFT + index as f64 * PANEL_STEP, title, curves);
    }
    out + "</svg>\n"
}

/// Text that stands for itself.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Where a point lies.
struct Scale {
    left: f64,
    doublings: f64,
    bytes_per_s: u64,
}

impl Scale {
    fn x(&self, workers: u16) -> f64 {
        self.left + f64::from(workers).log2() / self.doublings * PANEL_WIDTH
    }

    fn y(&self, bytes_per_s: u64) -> f64 {
        TOP + PANEL_HEIGHT * (1.0 - bytes_per_s as f64 / self.bytes_per_s as f64)
    }
}

fn panel(out: &mut String, left: f64, title: &str, curves: &[&(Shape, Curve)]) {
    let points = || curves.iter().flat_map(|(_, curve)| curve.points());
    let workers = points().map(|point| point.workers).max().unwrap_or(1);
    let scale = Scale {
        left,
        doublings: f64::from(workers).log2().max(DOUBLINGS_MIN),
        bytes_per_s: points().map(|point| point.bytes_per_s).max().unwrap_or(1),
    };
    axes(out, &scale, title);
    for (index, (shape, curve)) in curves.iter().enumerate() {
        let (line, colour) = (index as f64 * LEGEND_LINE, COLOURS[index % COLOURS.len()]);
        draw(out, &scale, curve, colour);
        let y = TOP + PANEL_HEIGHT + 56.0 + line;
        push(
            out,
            format_args!(
                "<rect x=\"{left}\" y=\"{}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{y}\">{shape}</text>",
                y - 6.0,
                left + 18.0
            ),
        );
    }
}

fn axes(out: &mut String, scale: &Scale, title: &str) {
    let (left, bottom) = (scale.left, TOP + PANEL_HEIGHT);
    push(
        out,
        format_args!(
            "<text x=\"{left}\" y=\"{}\" font-size=\"13\">{title}</text>\
             <path d=\"M{left} {TOP}V{bottom}H{}\" fill=\"none\" stroke=\"black\"/>",
            TOP - 10.0,
            left + PANEL_WIDTH
        ),
    );
    for doubling in 0..=scale.doublings as u32 {
        let workers = 1_u16.checked_shl(doubling).unwrap_or(u16::MAX);
        let (x, y) = (scale.x(workers), bottom + 18.0);
        push(
            out,
            format_args!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{workers}</text>"),
        );
    }
    let (x, y) = (left + PANEL_WIDTH / 2.0, bottom + 36.0);
    push(out, format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">workers</text>"));
    for part in 0..=4 {
        let bytes = scale.bytes_per_s / 4 * part;
        let (x, y) = (left - 6.0, scale.y(bytes) + 4.0);
        let text = ByteSize(bytes);
        push(out, format_args!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}/s</text>"));
    }
}

fn draw(out: &mut String, scale: &Scale, curve: &Curve, colour: &str) {
    let place = |point: &Point| (scale.x(point.workers), scale.y(point.bytes_per_s));
    let places = curve.points().iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}"));
    let places = places.collect::<Vec<_>>().join(" ");
    push(
        out,
        format_args!(
            "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ),
    );
    let useful = curve.points().iter().find(|point| Some(point.workers) == curve.useful_workers());
    if let Some(point) = useful {
        let (x, y) = place(point);
        push(
            out,
            format_args!(
                "<path d=\"M{x:.1} {y:.1}V{}\" stroke=\"{colour}\" stroke-dasharray=\"4 3\"/>\
                 <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>",
                TOP + PANEL_HEIGHT
            ),
        );
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_device::profile::{Order, Source, Through};

    #[test]
    fn a_picture_has_each_curve_and_a_mark_where_more_workers_are_of_no_use() {
        let shape = |access| Shape {
            access,
            order: Order::Random,
            block_bytes: 4096,
            through: Through::Direct,
        };
        let point = |workers, bytes_per_s| Point { workers, bytes_per_s };
        let curve = Curve::new(vec![point(1, 50), point(4, 100), point(64, 25)]);
        let curves = vec![(shape(Access::Read), Curve::default()), (shape(Access::Write), curve)];
        let profile = DeviceProfile { source: Source::Measured, sync_ns: 0, curves };
        let picture = svg(Path::new("/a<b&c"), &profile);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("/a&lt;b&amp;c: throughput"), "{picture}");
        assert!(picture.contains("write, random, 4 KiB, direct</text>"), "{picture}");
        // The second panel begins at 570 and is 360 wide for six doublings.
        let (line, mark) = ("570.0,180.0 690.0,60.0 930.0,240.0", "cx=\"690.0\" cy=\"60.0\"");
        assert!(picture.contains(line) && picture.contains(mark), "{picture}");
        assert_eq!(picture.matches("<circle").count(), 1, "no mark where nothing is known");
    }
}
