//! Top 10 over rows of 384 random values: each pass over them and instruction set at hand, with the portable exact one as
//! the scale. Rotated rows need real vectors: `bench_topk.py`.
#![allow(missing_docs, clippy::unwrap_used)] // criterion's macros write undocumented functions; a bench may panic

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use secateur_core::simd::InstructionSet;
use secateur_core::{Pass, Search, Vectors, search};
use std::hint::black_box;

const DIMENSION: usize = 384;

/// Numbers that look random and are the same in every run (Lehmer's generator with Park and Miller's factor).
fn numbers() -> impl Iterator<Item = f32> {
    let next = |state: &u64| Some(state * 48_271 % 0x7FFF_FFFF);
    std::iter::successors(Some(1_u64), next).map(|state| (state as f32 / 0x7FFF_FFFF as f32) - 0.5)
}

fn searches(criterion: &mut Criterion) {
    let query: Vec<f32> = numbers().take(DIMENSION).collect();
    let mut group = criterion.benchmark_group("top 10");
    for rows in [100, 1_000, 10_000] {
        let values: Vec<f32> = numbers().skip(DIMENSION).take(rows * DIMENSION).collect();
        let mut vectors = Vectors::new(DIMENSION).unwrap();
        vectors.append(&values).unwrap();
        let mut bench = |name: &str, search_of: Search<'_>| {
            group.bench_with_input(BenchmarkId::new(name, rows), &rows, |bencher, _| {
                bencher.iter(|| search(&vectors, &[black_box(&query)], &search_of));
            });
        };
        bench("as it comes", Search::new(10));
        for instruction_set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            for pass in [Pass::Exact, Pass::Bytes, Pass::Nibbles] {
                let search_of = Search { pass: Some(pass), instruction_set, ..Search::new(10) };
                bench(&format!("{pass:?} {instruction_set:?}"), search_of);
            }
        }
    }
    group.finish();
}

criterion_group!(benches, searches);
criterion_main!(benches);
