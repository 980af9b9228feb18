//! HTTP/1 in both directions: a client's octets, and a server's, in one piece and octet by octet.
#![no_main]

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::{HeaderMap, Method};
use weir_http1::body_framing::Piece;
use weir_http1::field_lines::FieldLines;
use weir_http1::framing_watch::FramingWatch;
use weir_http1::request_head::{FIELDS, read};
use weir_http1::response_head::{FieldsInto, take};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut room = [const { MaybeUninit::uninit() }; FIELDS];
    let _ = read(data, &mut room);
    let (mut whole, mut pieces) = (FramingWatch::default(), FramingWatch::default());
    whole.see(data);
    data.iter().for_each(|octet| pieces.see(&[*octet]));
    assert_eq!((whole.saw_both(), whole.in_head()), (pieces.saw_both(), pieces.in_head()));
    assert_eq!(whole.saw_unclear(), pieces.saw_unclear());
    let _ = take(&mut BytesMut::from(data), &Method::GET, FieldsInto::Lines(&mut FieldLines::new()));
    let mut input = BytesMut::from(data);
    if let Ok(Some(mut head)) = take(&mut input, &Method::GET, FieldsInto::Map(&mut HeaderMap::new())) {
        while let Ok(Piece::Data(_) | Piece::Trailers(_)) = head.framing.take(&mut input) {}
    }
});
