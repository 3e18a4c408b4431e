//! Top-K over rows of 384 values: the kernel at hand, and the portable one as the scale.
#![allow(missing_docs, clippy::unwrap_used)] // criterion's macros write undocumented functions; a bench may panic

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use secateur_core::{Vectors, simd, top_k};
use std::hint::black_box;

const DIMENSION: usize = 384;

/// Numbers that look random and are the same in every run (Lehmer's generator with Park and Miller's factor).
fn numbers() -> impl Iterator<Item = f32> {
    let next = |state: &u64| Some(state * 48_271 % 0x7FFF_FFFF);
    std::iter::successors(Some(1_u64), next).map(|state| (state as f32 / 0x7FFF_FFFF as f32) - 0.5)
}

fn search(criterion: &mut Criterion) {
    let query: Vec<f32> = numbers().take(DIMENSION).collect();
    let mut group = criterion.benchmark_group("top 10");
    for rows in [100, 1_000, 10_000] {
        let values: Vec<f32> = numbers().skip(DIMENSION).take(rows * DIMENSION).collect();
        let mut vectors = Vectors::new(DIMENSION).unwrap();
        vectors.append(&values).unwrap();
        group.bench_with_input(BenchmarkId::new("search", rows), &rows, |bencher, _| {
            bencher.iter(|| top_k(&vectors, black_box(&query), 10, None));
        });
        group.bench_with_input(BenchmarkId::new("portable dot products", rows), &rows, |bencher, _| {
            bencher.iter(|| {
                values.chunks_exact(DIMENSION).map(|row| simd::dot_portable(black_box(&query), row)).sum::<f64>()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, search);
criterion_main!(benches);
