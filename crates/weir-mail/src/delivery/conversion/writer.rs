//! Writes the converted message.

use super::encoder::{Base64, QuotedPrintable};
use super::part_header::{Becoming, PartHeader};
use super::survey::Survey;
use super::walker::Visitor;
use std::sync::Arc;

/// The message so far that nobody has taken yet.
#[derive(Debug)]
pub(super) struct Writer {
    survey: Arc<Survey>,
    out: Vec<u8>,
    /// Headers so far.
    parts: usize,
    encoder: Encoder,
    /// A line has ended; whether that is the part's or the boundary's is not known yet.
    owes_line_end: bool,
}

#[derive(Debug)]
enum Encoder {
    None,
    QuotedPrintable(QuotedPrintable),
    Base64(Base64),
}

impl Writer {
    pub(super) fn new(survey: Arc<Survey>) -> Writer {
        Writer { survey, out: Vec::new(), parts: 0, encoder: Encoder::None, owes_line_end: false }
    }

    /// What has been written since the last time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn pay_line_end(&mut self) {
        if !std::mem::take(&mut self.owes_line_end) {
            return;
        }
        match &mut self.encoder {
            Encoder::None => self.out.extend_from_slice(b"\r\n"),
            Encoder::QuotedPrintable(quoted) => quoted.line_end(&mut self.out),
            Encoder::Base64(base64) => base64.write(b"\r\n", &mut self.out),
        }
    }
}

impl Visitor for Writer {
    fn header(&mut self, header: &PartHeader, block: &[u8]) {
        let becoming = self.survey.becoming(self.parts);
        self.parts += 1;
        self.encoder = match becoming {
            Becoming::QuotedPrintable { .. } => Encoder::QuotedPrintable(QuotedPrintable::default()),
            Becoming::Base64 => Encoder::Base64(Base64::default()),
            Becoming::SevenBit | Becoming::Same => Encoder::None,
        };
        match header.signed {
            true => self.out.extend_from_slice(block),
            false => self.out.extend_from_slice(&header.converted(block, becoming, self.survey.needs.seven_bit)),
        }
    }

    fn text(&mut self, text: &[u8], _: bool) {
        self.pay_line_end();
        match &mut self.encoder {
            Encoder::None => self.out.extend_from_slice(text),
            Encoder::QuotedPrintable(quoted) => quoted.write(text, &mut self.out),
            Encoder::Base64(base64) => base64.write(text, &mut self.out),
        }
    }

    fn line_end(&mut self) {
        self.pay_line_end();
        self.owes_line_end = true;
    }

    fn part_end(&mut self, boundary_follows: bool) {
        let owed = self.owes_line_end;
        if boundary_follows {
            self.owes_line_end = false;
        } else {
            self.pay_line_end();
        }
        match std::mem::replace(&mut self.encoder, Encoder::None) {
            Encoder::None => {}
            Encoder::QuotedPrintable(mut quoted) => quoted.finish(&mut self.out),
            Encoder::Base64(base64) => base64.finish(!boundary_follows, &mut self.out),
        }
        if boundary_follows && owed {
            self.out.extend_from_slice(b"\r\n");
        }
    }

    fn between(&mut self, line: &[u8]) {
        if self.survey.needs.seven_bit {
            self.out.extend(line.iter().map(|byte| if byte.is_ascii() { *byte } else { b'?' }));
        } else {
            self.out.extend_from_slice(line);
        }
    }
}
