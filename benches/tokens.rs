//! Counting by script, for each width that an interpreter stores text in.
#![allow(missing_docs)] // criterion's macros write undocumented functions

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use secateur_core::{ScriptCounts, Text};
use std::hint::black_box;

const MEGABYTE: usize = 1 << 20;

fn repeated<U: Copy>(units: impl Iterator<Item = U> + Clone, bytes: usize) -> Vec<U> {
    units.cycle().take(bytes / size_of::<U>()).collect()
}

fn tokens(criterion: &mut Criterion) {
    let latin1 = repeated("GET /routes?fleet=7 200 OK\n".bytes(), MEGABYTE);
    let cyrillic = repeated("Маршруты парка: расстояние, пробки. ".encode_utf16(), MEGABYTE);
    let chinese = repeated("车队路线效率的计算。".encode_utf16(), MEGABYTE);
    let emoji = repeated("route 🚚 → 漢字 ".chars().map(u32::from), MEGABYTE);
    let utf8 = repeated("Маршруты парка: расстояние, пробки. ".bytes(), MEGABYTE);
    let mut group = criterion.benchmark_group("script tokens of 1 MB");
    group.throughput(Throughput::Bytes(MEGABYTE as u64));
    for (name, text) in [
        ("latin-1, ASCII", Text::Latin1(&latin1)),
        ("two bytes, Cyrillic", Text::Ucs2(&cyrillic)),
        ("two bytes, Chinese", Text::Ucs2(&chinese)),
        ("four bytes, mixed", Text::Ucs4(&emoji)),
        ("UTF-8, Cyrillic", Text::Utf8(&utf8)),
    ] {
        group.bench_function(name, |bencher| bencher.iter(|| ScriptCounts::of(black_box(text)).tokens()));
    }
    group.finish();
}

criterion_group!(benches, tokens);
criterion_main!(benches);
