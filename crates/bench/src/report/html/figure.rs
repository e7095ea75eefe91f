//! The section of a paper's figure: a plot for each of its measures, where results are of one.
//!
//! What is varied lies across as a line where it is a number, and is a bar each where it is a word.
//! Colours are of this section alone: its series may be workloads.

use super::sections::{card, section};
use super::svg::{self, Axis, Bar, COLOURS, Scale, Series, bars, escaped, plot, short};
use crate::figures::{Drawing, Measure};
use crate::results::Results;

/// The section; empty where `results` are of no figure.
pub fn figure(results: &Results) -> String {
    let Some(drawing) = Drawing::of(results) else { return String::new() };
    let cards: Vec<_> = plots(&drawing).iter().map(|(name, drawn)| card(name, drawn)).collect();
    let text = format!(
        "{}: medians of the rounds by {}.{}",
        escaped(&drawing.figure.source()),
        escaped(drawing.figure.axis),
        if drawing.numbers().is_some() { names(&drawing) } else { String::new() }
    );
    section(&text, &cards)
}

/// The plots alone, in one picture; none where `results` are of no figure.
pub fn picture(results: &Results) -> Option<String> {
    let drawing = Drawing::of(results)?;
    let is_named = drawing.numbers().is_some();
    let series = drawing.series.iter().map(|series| series.name.clone());
    let names: Vec<_> = series.enumerate().filter(|_| is_named).collect();
    Some(svg::picture(drawing.figure.title, &plots(&drawing), &names))
}

/// One for each measure, with its name.
fn plots(drawing: &Drawing) -> Vec<(&'static str, String)> {
    let numbers = drawing.numbers();
    let plot = |(at, measure): (usize, &Measure)| {
        let drawn = match &numbers {
            Some(numbers) => lines(drawing, numbers, at),
            None => bars(measure.name, &words(drawing, at)),
        };
        (measure.name, drawn)
    };
    drawing.measures().iter().enumerate().map(plot).collect()
}

/// A line for each series.
fn lines(drawing: &Drawing, numbers: &[f64], measure: usize) -> String {
    let across = Axis::new(drawing.figure.axis, Scale::Linear);
    let name = drawing.measures()[measure].name;
    let series: Vec<_> = drawing
        .series
        .iter()
        .enumerate()
        .map(|(colour, series)| {
            let medians = series.points.iter().map(|point| point[measure].map(|s| s.median));
            let points = numbers.iter().zip(medians).filter_map(|(x, y)| Some((*x, y?)));
            Series { name: series.name.clone(), colour, points: points.collect() }
        })
        .collect();
    plot(
        &format!("{name} by {}", across.name),
        &across,
        &Axis::new(name, Scale::Linear),
        &series,
        true,
    )
}

/// A bar for each value of each series.
fn words(drawing: &Drawing, measure: usize) -> Vec<Bar> {
    let several = drawing.series.len() > 1;
    let mut all = Vec::new();
    for (colour, series) in drawing.series.iter().enumerate() {
        for (value, point) in drawing.values.iter().zip(&series.points) {
            let Some(spread) = point[measure] else { continue };
            let name = if several { format!("{value}, {}", series.name) } else { value.clone() };
            let text = short(spread.median);
            all.push(Bar {
                name,
                colour,
                parts: vec![(text.clone(), spread.median)],
                spread: Some((spread.min, spread.max)),
                mark: None,
                text,
            });
        }
    }
    all
}

/// Which colour is which series.
fn names(drawing: &Drawing) -> String {
    let name = |(colour, series): (usize, &crate::figures::Series)| {
        let colour = colour % COLOURS;
        format!(" <span class='key c{colour}'></span>{}", escaped(&series.name))
    };
    drawing.series.iter().enumerate().map(name).collect()
}
