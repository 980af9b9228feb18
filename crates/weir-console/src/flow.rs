//! The flow through the four gates as a picture for the overview: what passes, what waits and what is refused, with numbers large enough to
//! read from across a room.
//!
//! Each colour has one meaning everywhere: green passes, amber waits, red is refused or kept. The thickness of a stream shows its rate, on
//! a logarithmic scale, and the level of a basin shows how much waits.

use crate::history::History;
use crate::html;
use crate::html::Html;
use crate::pulse::Pulse;
use crate::words::{count, grouped, rate};
use std::time::Instant;

/// One gate in the picture.
struct Lane {
    name: &'static str,
    /// The address of its page, without the first slash.
    link: &'static str,
    /// Nothing if the gate is off.
    flow: Option<Flow>,
}

struct Flow {
    /// How much passes each second, and its caption.
    passes_per_s: f64,
    passes: &'static str,
    /// How much waits, and the noun for one of it.
    waits: u64,
    noun: &'static str,
    /// How much is refused or kept, and its caption.
    refused: String,
    is_refused: bool,
    refusal: &'static str,
}

const ROW: f64 = 96.0;
const WIDE: f64 = 1_040.0;
const NARROW_ROW: f64 = 104.0;
const NARROW: f64 = 340.0;
/// Streams up to this strength are thin; at a hundred thousand times this they are as thick as possible.
const THIN: f64 = 2.0;
const THICK: f64 = 16.0;

/// The picture, in a wide form and in a narrow one for telephones.
pub(crate) fn picture(pulse: &Pulse, history: &History, now: Instant) -> Html {
    let lanes = lanes(pulse, history, now);
    let words = "What goes through the four gates, what waits there, and what is refused";
    let wide: Html = lanes.iter().zip(0_u8..).map(|(lane, at)| wide_row(lane, f64::from(at) * ROW)).collect();
    let narrow: Html =
        lanes.iter().zip(0_u8..).map(|(lane, at)| narrow_row(lane, f64::from(at) * NARROW_ROW)).collect();
    html!(
        "<figure class=\"plot flow\"><div class=\"wide\"><svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"group\" aria-label=\"{}\">{}</svg></div>\
         <div class=\"narrow\"><svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"group\" aria-label=\"{}\">{}</svg></div></figure>",
        WIDE,
        ROW * lanes.len() as f64,
        words,
        wide,
        NARROW,
        NARROW_ROW * lanes.len() as f64,
        words,
        narrow
    )
}

fn lanes(pulse: &Pulse, history: &History, now: Instant) -> [Lane; 4] {
    let throttle = pulse.status.as_ref().map(|status| Flow {
        passes_per_s: history.rate_now(|reading| reading.mails, now),
        passes: "mail taken",
        waits: status.totals.held_recipients.max(0) as u64,
        noun: "recipient",
        refused: grouped(status.totals.stopped.max(0) as u64),
        is_refused: status.totals.stopped > 0,
        refusal: if status.totals.stopped == 1 { "account stopped" } else { "accounts stopped" },
    });
    let kept = pulse.quarantined("").max(0) as u64;
    let scan = pulse.feeds.as_ref().map(|feeds| Flow {
        passes_per_s: history.rate_now(|reading| reading.scanned - reading.kept, now),
        passes: "mail passes",
        waits: feeds.unscanned() as u64,
        noun: "mail",
        refused: grouped(kept),
        is_refused: kept > 0,
        refusal: "in quarantine",
    });
    let refused = history.rate_now(|reading| reading.refused, now);
    let web = pulse.web.as_ref().map(|_| Flow {
        passes_per_s: history.rate_now(|reading| reading.served, now),
        passes: "requests served",
        waits: pulse.web_waiting() as u64,
        noun: "request",
        refused: rate(refused),
        is_refused: refused > 0.0,
        refusal: "refused",
    });
    let aside = pulse.samples("quarantined").max(0) as u64;
    let lab = pulse.lab.as_ref().map(|_| Flow {
        passes_per_s: history.rate_now(|reading| reading.samples_done, now),
        passes: "samples analysed",
        waits: pulse.samples_open().max(0) as u64,
        noun: "sample",
        refused: grouped(aside),
        is_refused: aside > 0,
        refusal: "set aside",
    });
    [
        Lane { name: "Throttle", link: "throttle", flow: throttle },
        Lane { name: "Scan", link: "feeds", flow: scan },
        Lane { name: "Web", link: "web", flow: web },
        Lane { name: "Lab", link: "lab", flow: lab },
    ]
}

impl Flow {
    /// How thick its stream is.
    fn thickness(&self) -> f64 {
        let strength = (1.0 + self.passes_per_s.max(0.0) * 60.0).log10() / 5.0;
        THIN + (THICK - THIN) * strength.min(1.0)
    }

    /// The class of a part of its stream; it has no colour while nothing moves.
    fn moves(&self, part: &str) -> String {
        if self.passes_per_s > 0.0 { part.to_owned() } else { format!("{part} still") }
    }

    /// How full its basin is, from 0 to 1.
    fn filled(&self) -> f64 {
        ((1.0 + self.waits as f64).log10() / 4.0).min(1.0)
    }

    fn waiting(&self) -> String {
        match self.waits {
            0 => "nothing waits".to_owned(),
            1 => format!("{} waits", self.noun),
            waits => format!("{} wait", count(waits, self.noun).split_once(' ').map_or("", |(_, noun)| noun)),
        }
    }

    fn says(&self, name: &str) -> String {
        let waits = match self.waits {
            0 => "nothing waits".to_owned(),
            waits => format!("{} wait", count(waits, self.noun)),
        };
        format!("{name}: {} {}, {waits}, {} {}", rate(self.passes_per_s), self.passes, self.refused, self.refusal)
    }

    fn passes_class(&self) -> &'static str {
        if self.passes_per_s > 0.0 { "big green" } else { "big faint" }
    }

    fn waits_class(&self) -> &'static str {
        if self.waits > 0 { "big amber" } else { "big faint" }
    }

    fn refused_class(&self) -> &'static str {
        if self.is_refused { "big red" } else { "big faint" }
    }
}

/// A length, to a tenth.
fn to(value: f64) -> String {
    format!("{value:.1}")
}

/// From left to right: the name, the basin of what waits, the stream of what passes, and what is refused.
fn wide_row(lane: &Lane, top: f64) -> Html {
    let Some(flow) = &lane.flow else { return off(lane, top, ROW) };
    let basin = 260.0;
    let (middle, below) = (top + 46.0, top + 78.0);
    let thick = flow.thickness();
    let stream = html!(
        "<line class=\"{}\" x1=\"140\" x2=\"200\" y1=\"{}\" y2=\"{}\" stroke-width=\"{}\"/>\
         <line class=\"{}\" x1=\"460\" x2=\"560\" y1=\"{}\" y2=\"{}\" stroke-width=\"{}\"/>\
         <path class=\"{}\" d=\"M 560 {} l 18 10 l -18 10 z\"/>",
        flow.moves("stream"),
        to(middle),
        to(middle),
        to(thick),
        flow.moves("stream"),
        to(middle),
        to(middle),
        to(thick),
        flow.moves("arrow"),
        to(middle - 10.0)
    );
    html!(
        "<a href=\"/{}\"><title>{}</title><rect class=\"ground\" x=\"0\" y=\"{}\" width=\"1040\" height=\"{}\"/>\
         <text class=\"gate\" x=\"0\" y=\"{}\">{}</text>{}\
         <rect class=\"basin\" x=\"200\" y=\"{}\" width=\"{}\" height=\"72\" rx=\"6\"/>\
         <rect class=\"water\" x=\"200\" y=\"{}\" width=\"{}\" height=\"72\" rx=\"6\"/>\
         <text class=\"{}\" x=\"330\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <text class=\"faint\" x=\"330\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <text class=\"{}\" x=\"596\" y=\"{}\">{}</text><text class=\"faint\" x=\"596\" y=\"{}\">{}</text>\
         <text class=\"{}\" x=\"1032\" y=\"{}\" text-anchor=\"end\">{}</text>\
         <text class=\"faint\" x=\"1032\" y=\"{}\" text-anchor=\"end\">{}</text></a>",
        lane.link,
        flow.says(lane.name),
        to(top),
        to(ROW - 4.0),
        to(middle + 8.0),
        lane.name,
        stream,
        to(top + 10.0),
        to(basin),
        to(top + 10.0),
        to(basin * flow.filled()),
        flow.waits_class(),
        to(middle + 10.0),
        grouped(flow.waits),
        to(below - 4.0),
        flow.waiting(),
        flow.passes_class(),
        to(middle + 10.0),
        rate(flow.passes_per_s),
        to(below - 4.0),
        flow.passes,
        flow.refused_class(),
        to(middle + 10.0),
        flow.refused,
        to(below - 4.0),
        flow.refusal
    )
}

/// The name above three numbers.
fn narrow_row(lane: &Lane, top: f64) -> Html {
    let Some(flow) = &lane.flow else { return off(lane, top, NARROW_ROW) };
    let (number, below) = (to(top + 62.0), to(top + 82.0));
    html!(
        "<a href=\"/{}\"><title>{}</title><text class=\"gate\" x=\"0\" y=\"{}\">{}</text>\
         <line class=\"{}\" x1=\"124\" x2=\"340\" y1=\"{}\" y2=\"{}\" stroke-width=\"{}\"/>\
         <text class=\"{}\" x=\"0\" y=\"{}\">{}</text><text class=\"faint\" x=\"0\" y=\"{}\">{}</text>\
         <text class=\"{}\" x=\"126\" y=\"{}\">{}</text><text class=\"faint\" x=\"126\" y=\"{}\">{}</text>\
         <text class=\"{}\" x=\"340\" y=\"{}\" text-anchor=\"end\">{}</text><text class=\"faint\" x=\"340\" y=\"{}\" text-anchor=\"end\">{}</text></a>",
        lane.link,
        flow.says(lane.name),
        to(top + 26.0),
        lane.name,
        flow.moves("stream"),
        to(top + 20.0),
        to(top + 20.0),
        to(flow.thickness()),
        flow.waits_class(),
        number,
        grouped(flow.waits),
        below,
        flow.waiting(),
        flow.passes_class(),
        number,
        rate(flow.passes_per_s),
        below,
        flow.passes,
        flow.refused_class(),
        number,
        flow.refused,
        below,
        flow.refusal
    )
}

fn off(lane: &Lane, top: f64, height: f64) -> Html {
    let middle = to(top + height / 2.0);
    html!(
        "<a href=\"/{}\"><text class=\"gate faint\" x=\"0\" y=\"{}\">{}</text><text class=\"faint\" x=\"200\" y=\"{}\">off</text></a>",
        lane.link,
        middle,
        lane.name,
        middle
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_that_are_off_are_said_to_be() {
        let picture = picture(&Pulse::blind(), &History::default(), Instant::now()).into_string();
        assert_eq!(picture.matches(">off</text>").count(), 8, "{picture}");
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }

    #[test]
    fn a_stream_is_as_thick_as_it_is_strong_and_a_basin_as_full_as_much_waits() {
        let flow = |passes_per_s: f64, waits: u64| Flow {
            passes_per_s,
            passes: "requests served",
            waits,
            noun: "request",
            refused: "0/min".to_owned(),
            is_refused: false,
            refusal: "refused",
        };
        let thick = |per_s| flow(per_s, 0).thickness();
        assert_eq!((thick(0.0), thick(f64::MAX)), (THIN, THICK));
        assert!(thick(0.1) < thick(10.0) && thick(10.0) < thick(1_000.0));
        assert!(flow(0.0, 0).filled() == 0.0 && flow(0.0, 9).filled() < flow(0.0, 999).filled());
        assert!(flow(0.0, u64::MAX).filled() <= 1.0);
        assert_eq!((flow(0.0, 1).waiting(), flow(0.0, 7).waiting()), ("request waits".into(), "requests wait".into()));
        assert_eq!(flow(2.0, 3).says("Web"), "Web: 2.0/s requests served, 3 requests wait, 0/min refused");
        let row = wide_row(&Lane { name: "Web", link: "web", flow: Some(flow(2.0, 3)) }, 0.0).into_string();
        assert!(
            row.contains("class=\"big amber\"")
                && row.contains("class=\"big green\"")
                && row.contains("class=\"big faint\"")
        );
    }
}
