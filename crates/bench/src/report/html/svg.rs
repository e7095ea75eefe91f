//! Plots as text: bars, lines and points, inline in the page, without a library.
//!
//! Colours are classes (`c0` to `c7`) whose values the style sheet has for light and for dark.
//! Every mark carries a `<title>`, which browsers show under the pointer.
//!
//! Invariant: what comes from outside passes through [`escaped`].

use std::fmt::Write;

/// Colours that can be told apart; more series repeat them.
pub const COLOURS: usize = 8;

/// Text that stands for itself in HTML.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(letter),
        }
    }
    out
}

/// A number with three digits that count: `1.23 k`, `45.6`, `0.0789`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (value, unit) = match size {
        s if s >= 1e9 => (value / 1e9, " G"),
        s if s >= 1e6 => (value / 1e6, " M"),
        s if s >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let size = value.abs();
    let digits = match size {
        0.0 => 0,
        s if s >= 100.0 => 0,
        s if s >= 10.0 => 1,
        s if s >= 1.0 => 2,
        _ => (2.0 - size.log10().floor()).min(6.0) as usize,
    };
    let text = format!("{value:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Above it.
    pub name: String,
    /// Number of the colour.
    pub colour: usize,
    /// Lengths that follow each other, each with what it is; one or more.
    pub parts: Vec<(String, f64)>,
    /// Least and greatest of the whole.
    pub spread: Option<(f64, f64)>,
    /// A line across it, with what it means.
    pub mark: Option<(f64, String)>,
    /// After it.
    pub text: String,
}

const BAR_WIDTH: f64 = 420.0;
const BAR_TEXT: f64 = 124.0;
const BAR_STEP: f64 = 32.0;

/// Horizontal bars under each other, all from zero on one scale.
pub fn bars(label: &str, bars: &[Bar]) -> String {
    let length = |bar: &Bar| bar.parts.iter().map(|(_, value)| *value).sum::<f64>();
    let reach = |bar: &Bar| {
        let mark = bar.mark.as_ref().map_or(0.0, |(at, _)| *at);
        let most = bar.spread.map_or(0.0, |(_, max)| max);
        length(bar).max(most).max(mark)
    };
    let max = bars.iter().map(reach).fold(f64::MIN_POSITIVE, f64::max);
    let room = BAR_WIDTH - BAR_TEXT;
    let x = |value: f64| (value / max).clamp(0.0, 1.0) * room;
    let height = bars.len() as f64 * BAR_STEP + 4.0;
    let mut svg = opened(label, BAR_WIDTH, height);
    for (index, bar) in bars.iter().enumerate() {
        let top = index as f64 * BAR_STEP;
        let (name, text) = (escaped(&bar.name), escaped(&bar.text));
        let _ = write!(svg, "<text x='0' y='{:.1}' class='name'>{name}</text>", top + 11.0);
        let mut from = 0.0;
        for (part, (what, value)) in bar.parts.iter().enumerate() {
            let (start, width) = (x(from), (x(from + value) - x(from)).max(0.5));
            let _ = write!(
                svg,
                "<rect x='{start:.1}' y='{:.1}' width='{width:.1}' height='13' rx='2' \
                 class='c{} part{part}'><title>{name}: {}</title></rect>",
                top + 15.0,
                bar.colour % COLOURS,
                escaped(what)
            );
            from += value;
        }
        if let Some((least, most)) = bar.spread.filter(|(least, most)| most > least) {
            let y = top + 21.5;
            let _ = write!(
                svg,
                "<line x1='{:.1}' x2='{:.1}' y1='{y:.1}' y2='{y:.1}' class='spread'/>",
                x(least),
                x(most)
            );
        }
        if let Some((at, what)) = &bar.mark {
            let _ = write!(
                svg,
                "<line x1='{0:.1}' x2='{0:.1}' y1='{1:.1}' y2='{2:.1}' class='mark'>\
                 <title>{3}</title></line>",
                x(*at),
                top + 13.0,
                top + 30.0,
                escaped(what)
            );
        }
        let end = x(reach(bar)) + 5.0;
        let y = top + 25.5;
        let _ = write!(svg, "<text x='{end:.1}' y='{y:.1}' class='value'>{text}</text>");
    }
    svg.push_str("</svg>");
    svg
}

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero, evenly.
    Linear,
    /// By powers of ten.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with its unit.
    pub name: String,
    /// How.
    pub scale: Scale,
    /// Names at 0, 1, 2 ... instead of numbers.
    pub names: Vec<String>,
}

impl Axis {
    /// An axis of numbers.
    pub fn new(name: &str, scale: Scale) -> Self {
        Self { name: name.to_owned(), scale, names: Vec::new() }
    }
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// What they belong to.
    pub name: String,
    /// Number of the colour.
    pub colour: usize,
    /// In the order of their first coordinate where they are joined.
    pub points: Vec<(f64, f64)>,
}

const PLOT_WIDTH: f64 = 420.0;
const PLOT_HEIGHT: f64 = 230.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// Above a plot of a picture.
const HEADING: f64 = 24.0;
/// From one name of a colour to the next, below a picture.
const NAME_STEP: f64 = 18.0;

/// From values to places.
struct Range {
    scale: Scale,
    from: f64,
    to: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>, axis: &Axis) -> Self {
        let scale = axis.scale;
        let values: Vec<f64> =
            values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0)).collect();
        let max = values.iter().copied().fold(0.0, f64::max);
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        match scale {
            Scale::Linear if !axis.names.is_empty() => {
                Self { scale, from: 0.0, to: (axis.names.len() as f64 - 1.0).max(1.0) }
            }
            Scale::Linear => {
                let step = step(max);
                Self { scale, from: 0.0, to: (max / step).ceil().max(1.0) * step }
            }
            Scale::Log if values.is_empty() => Self { scale, from: 1.0, to: 10.0 },
            Scale::Log => {
                let from = 10_f64.powf(min.log10().floor());
                let to = 10_f64.powf(max.log10().ceil());
                Self { scale, from, to: if to > from { to } else { from * 10.0 } }
            }
        }
    }

    /// 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => {
                (value.max(self.from) / self.from).log10() / (self.to / self.from).log10()
            }
        };
        share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = step(self.to);
                (0..=((self.to / step).round() as u32)).map(|n| f64::from(n) * step).collect()
            }
            Scale::Log => {
                let powers = (self.to / self.from).log10().round() as i32;
                let every = (powers / 6 + 1).max(1);
                (0..=powers).step_by(every as usize).map(|n| self.from * 10_f64.powi(n)).collect()
            }
        }
    }
}

/// A round distance between ticks, at most six of which reach `max`.
fn step(max: f64) -> f64 {
    if max <= 0.0 || !max.is_finite() {
        return 1.0;
    }
    let rough = max / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * power).find(|n| *n >= rough).unwrap_or(rough)
}

/// Lines through points, or points alone with their names beside them.
pub fn plot(label: &str, x: &Axis, y: &Axis, series: &[Series], joined: bool) -> String {
    let all = || series.iter().flat_map(|one| one.points.iter());
    let across = Range::of(all().map(|point| point.0), x);
    let up = Range::of(all().map(|point| point.1), y);
    let px = |value: f64| LEFT + across.place(value) * (PLOT_WIDTH - LEFT - RIGHT);
    let py = |value: f64| PLOT_HEIGHT - BOTTOM - up.place(value) * (PLOT_HEIGHT - TOP - BOTTOM);
    let mut svg = opened(label, PLOT_WIDTH, PLOT_HEIGHT);
    grid(&mut svg, (x, &across, &px), (y, &up, &py));
    for one in series {
        let colour = one.colour % COLOURS;
        let name = escaped(&one.name);
        let good = |point: &&(f64, f64)| {
            point.0.is_finite()
                && point.1.is_finite()
                && (y.scale == Scale::Linear || point.1 > 0.0)
        };
        let points: Vec<_> = one.points.iter().filter(good).collect();
        if joined && points.len() > 1 {
            let path: String = points
                .iter()
                .enumerate()
                .map(|(n, p)| {
                    format!("{}{:.1} {:.1}", if n == 0 { "M" } else { "L" }, px(p.0), py(p.1))
                })
                .collect();
            let _ =
                write!(svg, "<path d='{path}' class='line l{colour}'><title>{name}</title></path>");
        }
        // Every second of a long timeline would hide its own line.
        if !joined || points.len() <= 12 {
            for point in &points {
                let radius = if joined { 2.5 } else { 5.0 };
                let _ = write!(
                    svg,
                    "<circle cx='{:.1}' cy='{:.1}' r='{radius}' class='c{colour}'>\
                     <title>{name}: {}, {}</title></circle>",
                    px(point.0),
                    py(point.1),
                    escaped(&value_name(x, point.0)),
                    short(point.1)
                );
            }
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Most plots in a row of a picture; more of them come in rows of two.
const PLOTS_ACROSS: usize = 3;

/// Plots beside each other under their headings, as a picture that stands alone, with the names of
/// colours below.
pub fn picture(label: &str, plots: &[(&str, String)], names: &[(usize, String)]) -> String {
    let tallest = plots.iter().map(|(_, plot)| height_of(plot)).fold(0.0, f64::max);
    let across = if plots.len() > PLOTS_ACROSS { 2 } else { plots.len() };
    let row_height = HEADING + tallest;
    let below = row_height * plots.len().div_ceil(across.max(1)) as f64;
    let width = PLOT_WIDTH * across as f64;
    let mut svg = opened(label, width, below + NAME_STEP * names.len() as f64 + 4.0);
    svg.insert_str("<svg ".len(), "xmlns='http://www.w3.org/2000/svg' ");
    let _ = write!(
        svg,
        "<style>{}</style><rect width='100%' height='100%' style='fill: var(--card)'/>",
        include_str!("plot.css")
    );
    for (at, (heading, plot)) in plots.iter().enumerate() {
        let left = PLOT_WIDTH * (at % across) as f64;
        let top = row_height * (at / across) as f64;
        let _ = write!(
            svg,
            "<text x='{:.1}' y='{:.1}' class='value'>{}</text>",
            left + TOP,
            top + 16.0,
            escaped(heading)
        );
        let placed = format!(
            "<svg x='{left}' y='{}' width='{PLOT_WIDTH}' height='{}' ",
            top + HEADING,
            height_of(plot)
        );
        svg.push_str(&plot.replacen("<svg ", &placed, 1));
    }
    for (row, (colour, name)) in names.iter().enumerate() {
        let y = below + NAME_STEP * row as f64;
        let _ = write!(
            svg,
            "<rect x='{LEFT}' y='{y:.1}' width='12' height='12' rx='3' class='c{}'/>\
             <text x='{:.1}' y='{:.1}'>{}</text>",
            colour % COLOURS,
            LEFT + 18.0,
            y + 10.0,
            escaped(name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The height that a plot was [`opened`] with.
fn height_of(plot: &str) -> f64 {
    let view = plot.split('\'').nth(1).unwrap_or_default();
    view.rsplit(' ').next().and_then(|height| height.parse().ok()).unwrap_or(PLOT_HEIGHT)
}

/// What an axis calls a value.
fn value_name(axis: &Axis, value: f64) -> String {
    axis.names.get(value as usize).cloned().unwrap_or_else(|| short(value))
}

type Placed<'a> = (&'a Axis, &'a Range, &'a dyn Fn(f64) -> f64);

fn grid(svg: &mut String, (x, across, px): Placed<'_>, (y, up, py): Placed<'_>) {
    let (right, bottom) = (PLOT_WIDTH - RIGHT, PLOT_HEIGHT - BOTTOM);
    for tick in up.ticks() {
        let at = py(tick);
        let _ = write!(
            svg,
            "<line x1='{LEFT}' x2='{right}' y1='{at:.1}' y2='{at:.1}' class='grid'/>\
             <text x='{:.1}' y='{:.1}' class='tick end'>{}</text>",
            LEFT - 5.0,
            at + 3.5,
            short(tick)
        );
    }
    let named: Vec<f64> = (0..x.names.len()).map(|n| n as f64).collect();
    for tick in if named.is_empty() { across.ticks() } else { named } {
        let text = escaped(&value_name(x, tick));
        let _ = write!(
            svg,
            "<text x='{:.1}' y='{:.1}' class='tick middle'>{text}</text>",
            px(tick),
            bottom + 14.0
        );
    }
    let _ = write!(
        svg,
        "<line x1='{LEFT}' x2='{right}' y1='{bottom}' y2='{bottom}' class='axis'/>\
         <text x='{:.1}' y='{:.1}' class='tick middle'>{}</text>\
         <text transform='translate(11 {:.1}) rotate(-90)' class='tick middle'>{}</text>",
        (LEFT + right) / 2.0,
        PLOT_HEIGHT - 8.0,
        escaped(&x.name),
        (TOP + bottom) / 2.0,
        escaped(&y.name)
    );
}

fn opened(label: &str, width: f64, height: f64) -> String {
    format!("<svg viewBox='0 0 {width} {height}' role='img' aria-label='{}'>", escaped(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (1234.0, "1.23 k"),
            (196_000.0, "196 k"),
            (45.61, "45.6"),
            (0.0789, "0.0789"),
            (2.0, "2"),
            (100.0, "100"),
            (1.5e9, "1.5 G"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn text_from_outside_cannot_become_markup() {
        let bar = Bar {
            name: "<b>'\"&".to_owned(),
            colour: 9,
            parts: vec![("<i>".to_owned(), 1.0)],
            spread: None,
            mark: None,
            text: "<u>".to_owned(),
        };
        let svg = bars("a<b", &[bar]);
        for tag in ["<b>", "<i>", "<u>", "a<b"] {
            assert!(!svg.contains(tag), "{svg}");
        }
        assert!(svg.contains("&lt;b&gt;&#39;&quot;&amp;") && svg.contains("class='c1 part0'"));
    }

    #[test]
    fn axes_hold_all_values_with_round_ticks() {
        let axis = |scale| Axis::new("", scale);
        let linear = Range::of([3.0, 87.0].into_iter(), &axis(Scale::Linear));
        assert_eq!(linear.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear.place(50.0), 0.5);
        let log = Range::of([3.0, 870.0, 0.0].into_iter(), &axis(Scale::Log));
        assert_eq!(log.ticks(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((log.place(10.0) - 1.0 / 3.0).abs() < 1e-9);
        let nothing = Range::of(std::iter::empty(), &axis(Scale::Log));
        assert_eq!(nothing.ticks().len(), 2);
    }

    #[test]
    fn the_longest_bar_ends_where_its_text_begins() {
        let bar = |value: f64| Bar {
            name: String::new(),
            colour: 0,
            parts: vec![(String::new(), value)],
            spread: None,
            mark: None,
            text: String::new(),
        };
        let svg = bars("", &[bar(50.0), bar(100.0)]);
        assert!(svg.contains("width='296.0'") && svg.contains("width='148.0'"), "{svg}");
    }

    #[test]
    fn values_that_are_none_draw_nothing() {
        let series =
            Series { name: "a".to_owned(), colour: 0, points: vec![(0.0, f64::NAN), (1.0, 0.0)] };
        let axis = Axis::new("x", Scale::Linear);
        let svg = plot("p", &axis, &Axis::new("y", Scale::Log), &[series], true);
        assert!(!svg.contains("NaN") && !svg.contains("<circle"), "{svg}");
    }
}
