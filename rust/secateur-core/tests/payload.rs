//! Headers of real files, hostile bytes, and base64 against a naive twin.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A panic is how a test fails.

use proptest::prelude::*;
use secateur_core::payload::{
    decode_base64, decoded_length, image_size, image_size_in_base64, milliseconds, pdf_pages,
};

/// All of 321 by 123 pixels, as Pillow writes them.
const IMAGES: [&[u8]; 7] = [
    include_bytes!("data/321x123.png"),
    include_bytes!("data/321x123.gif"),
    include_bytes!("data/321x123-baseline.jpeg"),
    include_bytes!("data/321x123-progressive-exif.jpeg"),
    include_bytes!("data/321x123-lossy.webp"),
    include_bytes!("data/321x123-lossless.webp"),
    include_bytes!("data/321x123-extended.webp"),
];
const WAV: &[u8] = include_bytes!("data/half-second.wav");
const PDF: &[u8] = include_bytes!("data/three-pages.pdf");
const SIZE: Option<(u32, u32)> = Some((321, 123));

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// One bit at a time.
fn naive_encode(bytes: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |shift| byte >> shift & 1)).collect();
    let letter = |six: &[u8]| {
        let value = (0..6).fold(0, |value, bit| value << 1 | usize::from(*six.get(bit).unwrap_or(&0)));
        LETTERS[value]
    };
    let mut text: Vec<u8> = bits.chunks(6).map(letter).collect();
    text.resize(text.len().next_multiple_of(4), b'=');
    text
}

fn naive_decode(text: &[u8]) -> Vec<u8> {
    let values = text.iter().map_while(|letter| LETTERS.iter().position(|known| known == letter));
    let bits: Vec<u8> = values.flat_map(|value| (0..6).rev().map(move |shift| (value >> shift & 1) as u8)).collect();
    bits.chunks_exact(8).map(|eight| eight.iter().fold(0, |byte, bit| byte << 1 | bit)).collect()
}

/// A JPEG with so many bytes of metadata before its frame.
fn jpeg_with_metadata(bytes: usize) -> Vec<u8> {
    let mut jpeg = IMAGES[2][..2].to_vec();
    for segment in vec![0xD9; bytes].chunks(60_000) {
        jpeg.extend([0xFF, 0xFF, 0xE1]); // A fill byte is allowed before any marker.
        jpeg.extend((segment.len() as u16 + 2).to_be_bytes());
        jpeg.extend(segment);
    }
    jpeg.extend(&IMAGES[2][2..]);
    jpeg
}

#[test]
fn sizes_of_real_images() {
    for image in IMAGES {
        assert_eq!(image_size(image), SIZE);
        assert_eq!(image_size_in_base64(&naive_encode(image)), SIZE);
    }
}

#[test]
fn any_prefix_with_the_header_gives_the_size() {
    for image in IMAGES {
        let first = (0..=image.len()).find(|&length| image_size(&image[..length]).is_some()).unwrap();
        assert!((first..=image.len()).all(|length| image_size(&image[..length]) == SIZE));
    }
}

#[test]
fn base64_is_read_as_it_comes() {
    let image = IMAGES[0];
    let text = String::from_utf8(naive_encode(image)).unwrap();
    let lines: Vec<&str> = text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    for text in [
        format!("data:image/png;base64,{text}"),
        format!(" DATA:image/png;charset=utf-8;base64,{text}\n"),
        lines.join("\r\n"),
        text.replace('+', "-").replace('/', "_"),
        text.trim_end_matches('=').to_owned(),
    ] {
        assert_eq!(decode_base64(text.as_bytes(), usize::MAX), image);
        assert_eq!(decoded_length(text.as_bytes()), image.len() as u64);
        assert_eq!(image_size_in_base64(text.as_bytes()), SIZE);
    }
    assert_eq!(decode_base64(b"data:image/png;base64", 9), b"");
}

#[test]
fn long_metadata_is_passed_but_not_endless_metadata() {
    for (bytes, size) in [(900, SIZE), (15_000, SIZE), (200_000, SIZE), (300_000, None)] {
        assert_eq!(image_size_in_base64(&naive_encode(&jpeg_with_metadata(bytes))), size);
    }
}

#[test]
fn no_size_of_other_things() {
    for bytes in [&b""[..], b"BM", b"\xFF\xD8\xFF\xD9", b"RIFF\0\0\0\0WEBPVP8?", b"\x89PNG\r\n\x1A\n", PDF, WAV] {
        assert_eq!(image_size(bytes), None);
    }
    let mut flat = IMAGES[1].to_vec();
    flat[6..8].fill(0);
    assert_eq!(image_size(&flat), None, "a side of zero is no size");
}

#[test]
fn pages_of_documents() {
    assert_eq!(pdf_pages(PDF), Some(3));
    for (body, pages) in [
        ("1 0 obj<</Type/Page>>endobj 2 0 obj<</Type /Page/Parent 3 0 R>>endobj", Some(2)),
        ("1 0 obj<</Type /Pages /Kids [2 0 R] /Count 7>>endobj", Some(7)),
        ("1 0 obj<</Count 5/Type/Pages>>endobj 2 0 obj<</Type/Outlines/Count 90>>endobj", Some(5)),
        ("1 0 obj<</Linearized 1/L 9/O 3/E 9/N 12/T 9>>endobj 2 0 obj<</Type/ObjStm>>endobj", Some(12)),
        ("1 0 obj<</Type/PageLabel>>endobj 2 0 obj<</Type/Pages/Count 99999999999999>>endobj", Some(u32::MAX)),
        ("1 0 obj<</Type/ObjStm/N 4>>endobj", None),
        (
            "1 0 obj<</Length 9 /Filter /FlateDecode>>\nstream\n/ \nendstream endobj \
             2 0 obj<</Length 3 0 R>>stream\n\nendstream endobj \
             4 0 obj<</Type/ObjStm/N 4/Length 9/Filter/FlateDecode>>stream\n\nendstream endobj",
            Some(2),
        ),
    ] {
        assert_eq!(pdf_pages(format!("%PDF-1.7\n{body}").as_bytes()), pages, "{body}");
    }
    assert_eq!(pdf_pages(b"1 0 obj<</Type/Page>>endobj"), None);
}

#[test]
fn lengths_of_sounds_and_films() {
    assert_eq!(milliseconds(WAV, WAV.len() as u64), Some(500));
    assert_eq!(milliseconds(&WAV[..44], 1_044), Some(500));
    let mut streamed = WAV.to_vec();
    streamed[40..44].fill(0xFF);
    assert_eq!(milliseconds(&streamed, 2_044), Some(1_000));

    let frame = [0xFF, 0xFB, 0x90, 0x64];
    assert_eq!(milliseconds(&frame, 16_000), Some(1_000), "MPEG-1 at 128 kbit/s");
    assert_eq!(milliseconds(&[0xFF, 0xF3, 0x40, 0xC4], 4_000), Some(1_000), "MPEG-2 at 32 kbit/s");
    let tagged = [&b"ID3\x04\0\0\0\0\x01\x02"[..], &[7; 130], &frame].concat();
    assert_eq!(milliseconds(&tagged, 140 + 16_000), Some(1_000));
    assert_eq!(milliseconds(&[0xFF, 0xF1, 0x50, 0x80], 16_000), None, "AAC has no rate in its frame");

    let mut film = b"\0\0\0\x20ftypisom\0\0\0\0....mvhd\0\0\0\0........".to_vec();
    film.extend(1_000_u32.to_be_bytes());
    film.extend(5_000_u32.to_be_bytes());
    assert_eq!(milliseconds(&film, 10_024), Some(5_000));
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let heads: Vec<Vec<u8>> = IMAGES
        .iter()
        .chain([&WAV, &PDF])
        .map(|bytes| bytes.to_vec())
        .chain([
            b"ID3\x04\0\0\x7F\x7F\x7F\x7F".to_vec(),
            b"\0\0\0\0ftyp....mvhd\x01".to_vec(),
            b"%PDF-/Type/Pages".to_vec(),
        ])
        .collect();
    let mixed = (prop::sample::select(heads), any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..80))
        .prop_map(|(mut head, cut, tail)| {
            head.truncate(cut.index(head.len() + 1));
            head.extend(tail);
            head
        });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..300), mixed]
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in hostile(), length in any::<u64>()) {
        if let Some((width, height)) = image_size(&bytes) {
            prop_assert!(width > 0 && height > 0);
        }
        let _ = image_size_in_base64(&bytes);
        let _ = pdf_pages(&bytes);
        let _ = milliseconds(&bytes, length);
        let _ = decode_base64(&bytes, 100);
        let _ = decoded_length(&bytes);
    }

    #[test]
    fn base64_as_the_naive_twin(bytes in prop::collection::vec(any::<u8>(), 0..200), most in 0..300_usize) {
        let text = naive_encode(&bytes);
        prop_assert_eq!(&naive_decode(&text), &bytes);
        prop_assert_eq!(decode_base64(&text, most), &bytes[..most.min(bytes.len())]);
        prop_assert_eq!(decoded_length(&text), bytes.len() as u64);
    }

    #[test]
    fn any_letters_as_the_naive_twin(text in "[A-Za-z0-9+/]{0,60}[=!]?[A-Za-z]{0,9}") {
        prop_assert_eq!(decode_base64(text.as_bytes(), usize::MAX), naive_decode(text.as_bytes()));
    }

    #[test]
    fn size_from_any_longer_prefix(image in prop::sample::select(&IMAGES[..]), cut in any::<prop::sample::Index>()) {
        let prefix = &image[..cut.index(image.len() + 1)];
        prop_assert!(image_size(prefix).is_none_or(|size| Some(size) == SIZE));
    }
}
