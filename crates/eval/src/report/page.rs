//! Sets a report as one HTML page. The library escapes every text; the plots alone come in as they are, since theirs
//! escapes, too.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::report::figure::{Figure, Kind, PERCENTILE_DECIMALS, Place, Point, Scale, Shape, shortest};
use crate::report::{Section, Table};
use crate::tco::four_digits;

const STYLE: &str = include_str!("page.css");
/// Series and bars that a plot has room for; tables of the page end there, too.
const SERIES_MAX: usize = 8;
const BARS_MAX: usize = 24;
/// Verdicts of a section that stand open.
const VERDICTS_OPEN: usize = 8;

/// The page.
pub(crate) fn page(sections: &[Section], command: &str) -> String {
    let title = match sections {
        [one] => format!("{}: report of ziptier", one.title),
        _ => "Report of ziptier".to_owned(),
    };
    let all: Vec<(usize, &Section)> = (1..).zip(sections).collect();
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a class="skip" href="#verdict" { "Skip to the verdict" }
                header { h1 { (title) } }
                nav aria-label="Sections" { ul {
                    li { a href="#verdict" { "Verdict" } }
                    @for (number, section) in &all { li { a href={ "#section-" (number) } { (section.title) } } }
                    li { a href="#kinds" { "How a figure became known" } }
                } }
                main {
                    section id="verdict" aria-labelledby="verdict-title" {
                        h2 id="verdict-title" { "Verdict" }
                        @for (number, section) in &all { (verdict(*number, section)) }
                    }
                    @for (number, section) in &all { (body(*number, section)) }
                    (kinds())
                }
                footer { p class="small" {
                    "Made by ziptier " (env!("CARGO_PKG_VERSION")) ". To make this page again: " code { (command) }
                } }
            }
        }
    };
    markup.into_string()
}

fn verdict(number: usize, section: &Section) -> Markup {
    let (open, folded) = section.verdicts.split_at(section.verdicts.len().min(VERDICTS_OPEN));
    html! {
        div class="verdict" {
            h3 { a href={ "#section-" (number) } { (section.title) } }
            div class="columns" {
                div {
                    @if section.verdicts.is_empty() { p { "There is nothing to compare." } }
                    ul { @for sentence in open { li { (sentence) } } }
                    @if !folded.is_empty() {
                        details { summary { (folded.len()) " more of " (section.title) }
                            ul { @for sentence in folded { li { (sentence) } } }
                        }
                    }
                }
                @if !section.unknown.is_empty() { div {
                    h4 { "Not known, or not measured" }
                    ul class="unknown" { @for sentence in &section.unknown { li { (sentence) } } }
                } }
            }
        }
    }
}

fn body(number: usize, section: &Section) -> Markup {
    html! {
        section id={ "section-" (number) } aria-labelledby={ "section-" (number) "-title" } {
            h2 id={ "section-" (number) "-title" } { (section.title) }
            @for sentence in &section.about { p { (sentence) } }
            div class="figures" {
                @for (place, one) in (1..).zip(&section.figures) {
                    (figure(one, &format!("figure-{number}-{place}")))
                }
            }
            @for table in &section.tables { (written(table)) }
            (repeat(section))
        }
    }
}

/// The figure as far as a plot has room for it, and what is left out.
fn shown(figure: &Figure) -> (Figure, usize) {
    let mut shown = figure.clone();
    match figure.shape {
        Shape::Bars | Shape::Intervals => {
            shown.points.truncate(BARS_MAX);
            (shown, figure.points.len().saturating_sub(BARS_MAX))
        }
        Shape::Lines | Shape::Markers => {
            let series = figure.series();
            let kept = &series[..series.len().min(SERIES_MAX)];
            shown.points.retain(|point| kept.contains(&(point.series.as_str(), point.kind)));
            (shown, series.len() - kept.len())
        }
    }
}

fn figure(figure: &Figure, id: &str) -> Markup {
    let (shown, left_out) = shown(figure);
    let missing = figure.missing();
    html! {
        figure aria-labelledby={ (id) "-title" } {
            h3 id={ (id) "-title" } { (figure.title) }
            p class="about" id={ (id) "-about" } { (figure.description) }
            @if let Some(svg) = plot(&shown, id) {
                div class="plot" role="group" tabindex="0" aria-label={ "Plot: " (figure.title) } {
                    (PreEscaped(svg))
                }
            }
            @if !missing.is_empty() { p class="unknown" { "Missing: " (missing.join("; ")) "." } }
            @if left_out > 0 {
                p class="small" {
                    (left_out) " more have no room here; the JSON and the TSV beside this page have them."
                }
            }
            details { summary { "Numbers: " (figure.title) } (numbers(&shown)) }
        }
    }
}

#[cfg(feature = "plots")]
fn plot(figure: &Figure, id: &str) -> Option<String> {
    crate::report::plot::svg(figure, id)
}

#[cfg(not(feature = "plots"))]
fn plot(_: &Figure, _: &str) -> Option<String> {
    None
}

fn numbers(figure: &Figure) -> Markup {
    let has_series = figure.points.iter().any(|point| !point.series.is_empty());
    let has_ends = figure.points.iter().any(|point| point.low.is_some() || point.high.is_some());
    let number = |value: Option<f64>| value.map_or("missing".into(), four_digits);
    let place = |point: &Point| match &point.x {
        // Four digits would call many of them 100.
        Place::At(value) if figure.x.scale == Scale::Percentiles => shortest(*value, PERCENTILE_DECIMALS),
        Place::At(value) => four_digits(*value),
        Place::Named(name) => name.clone(),
        Place::Missing => "missing".into(),
    };
    html! {
        div class="scroll" role="group" tabindex="0" aria-label={ "Numbers: " (figure.title) } {
            table {
                caption { (figure.title) }
                thead { tr {
                    @if has_series { th scope="col" { "of" } }
                    th scope="col" { (figure.x.name) }
                    th scope="col" { (figure.y.name) }
                    @if has_ends { th scope="col" { "low" } th scope="col" { "high" } }
                    th scope="col" { "how known" }
                } }
                tbody { @for point in &figure.points { tr {
                    @if has_series { th scope="row" { (point.series) } td class="number" { (place(point)) } }
                    @else { th scope="row" { (place(point)) } }
                    td class="number" { (number(point.y)) }
                    @if has_ends { td class="number" { (end(point.low)) } td class="number" { (end(point.high)) } }
                    td { (point.kind.word()) }
                } } }
            }
        }
    }
}

/// An end of an interval; a point without an interval is no gap.
fn end(value: Option<f64>) -> String {
    value.map_or("none".into(), four_digits)
}

fn written(table: &Table) -> Markup {
    let [titles, rows @ ..] = table.lines.as_slice() else { return html! {} };
    html! {
        details { summary { "Table " (table.name) }
            div class="scroll" role="group" tabindex="0" aria-label={ "Table " (table.name) } {
                table {
                    caption { (table.name) ", as the benchmark wrote it; NA is missing" }
                    thead { tr { @for title in titles { th scope="col" { (title) } } } }
                    tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
                }
            }
        }
    }
}

/// The machine, the commands and the files.
fn repeat(section: &Section) -> Markup {
    html! {
        h3 { "To measure this again" }
        @for command in &section.commands { pre { (command) } }
        @if !section.facts.is_empty() {
            table {
                caption { "The machine" }
                tbody { @for (name, value) in &section.facts { tr { th scope="row" { (name) } td { (value) } } } }
            }
        }
        @for (name, text) in &section.files {
            details { summary { "File " (name) " of " (section.title) } pre { (text) } }
        }
    }
}

fn kinds() -> Markup {
    html! {
        section id="kinds" aria-labelledby="kinds-title" {
            h2 id="kinds-title" { "How a figure became known" }
            p {
                "A figure that was calculated from several bears the last of these words that any of them bears. \
                 A saving bears none: its interval of 95 % is that of the errors of all numbers behind it."
            }
            table {
                thead { tr { th scope="col" { "word" } th scope="col" { "meaning" } th scope="col" { "in plots" } } }
                tbody { @for kind in Kind::ALL { tr {
                    th scope="row" { (kind.word()) } td { (kind.meaning()) } td { (kind.look()) }
                } } }
            }
        }
    }
}
