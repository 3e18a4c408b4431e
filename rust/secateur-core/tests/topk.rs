//! The search against brute force, and every kernel against the portable one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A panic is how a test fails.

use proptest::prelude::*;
use secateur_core::{Error, Match, Vectors, simd, top_k};

/// Scores every row on its own, then sorts everything.
fn brute_force(rows: &[Vec<f32>], query: &[f32], k: usize) -> Vec<Match> {
    let norm = |vector: &[f32]| simd::dot_portable(vector, vector).sqrt();
    let mut matches: Vec<Match> = rows
        .iter()
        .enumerate()
        .map(|(position, row)| {
            let norms = norm(query) * norm(row);
            let score = if norms == 0.0 { 0.0 } else { (simd::dot_portable(query, row) / norms) as f32 };
            Match { position, score }
        })
        .collect();
    matches.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap().then(a.position.cmp(&b.position)));
    matches.truncate(k);
    matches
}

fn store(rows: &[Vec<f32>], dimension: usize) -> Vectors {
    let mut vectors = Vectors::new(dimension).unwrap();
    for row in rows {
        vectors.append(row).unwrap();
    }
    vectors
}

/// Rows of one dimension, with the shapes that break searches: duplicates, scaled copies, zeros, extremes.
fn case() -> impl Strategy<Value = (Vec<Vec<f32>>, Vec<f32>)> {
    (1_usize..80).prop_flat_map(|dimension| {
        let value = prop_oneof![
            6 => -1.0_f32..1.0,
            1 => Just(0.0_f32),
            1 => prop::sample::select(vec![1e-30_f32, -1e-38, 1e-45, 3e38, -1e30, 1.0, -0.0]),
        ];
        let row = prop_oneof![
            5 => prop::collection::vec(value.clone(), dimension),
            1 => Just(vec![0.0_f32; dimension]),
            1 => Just(vec![0.5_f32; dimension]),
            1 => Just(vec![0.125_f32; dimension]),
        ];
        (prop::collection::vec(row.clone(), 0..40), row)
    })
}

proptest! {
    #[test]
    fn equals_brute_force((rows, query) in case(), k in 0_usize..50) {
        let vectors = store(&rows, query.len());
        let found = top_k(&vectors, &query, k, None).unwrap();
        prop_assert_eq!(found, brute_force(&rows, &query, k));
    }

    #[test]
    fn candidates_are_searched_as_if_they_were_all(
        (rows, query) in case(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        k in 0_usize..70,
    ) {
        prop_assume!(!rows.is_empty());
        let candidates: Vec<usize> = picks.iter().map(|pick| pick.index(rows.len())).collect();
        let chosen: Vec<Vec<f32>> = candidates.iter().map(|&row| rows[row].clone()).collect();
        let vectors = store(&rows, query.len());
        prop_assert_eq!(top_k(&vectors, &query, k, Some(&candidates)).unwrap(), brute_force(&chosen, &query, k));
    }

    #[test]
    fn every_kernel_gives_the_same_bits((rows, query) in case()) {
        for row in &rows {
            prop_assert_eq!(simd::dot(&query, row).to_bits(), simd::dot_portable(&query, row).to_bits());
            // 1e-12 of the sum of magnitudes: far above float64 rounding, far below any wrong lane.
            let terms = || query.iter().zip(row).map(|(&x, &y)| f64::from(x) * f64::from(y));
            let magnitude: f64 = terms().map(f64::abs).sum();
            prop_assert!((simd::dot(&query, row) - terms().sum::<f64>()).abs() <= 1e-12 * magnitude);
        }
    }
}

#[test]
fn ties_go_to_the_earlier_row() {
    let vectors = store(&[vec![1.0, 0.0], vec![0.0, 1.0], vec![2.0, 0.0], vec![1.0, 0.0]], 2);
    let positions: Vec<usize> =
        top_k(&vectors, &[3.0, 0.0], 2, None).unwrap().iter().map(|found| found.position).collect();
    assert_eq!(positions, [0, 2]);
}

#[test]
fn refuses_what_it_cannot_search() {
    assert_eq!(Vectors::new(0).unwrap_err(), Error::ZeroDimension);
    let mut vectors = Vectors::new(2).unwrap();
    vectors.append(&[1.0, 2.0]).unwrap();
    assert_eq!(vectors.append(&[1.0, 2.0, 3.0]).unwrap_err(), Error::Dimension { got: 1, expected: 2 });
    let refused = vectors.append(&[1.0, 2.0, 3.0, f32::INFINITY]).unwrap_err();
    assert_eq!(refused, Error::NonFiniteRow { row: 1, column: 1, value: f32::INFINITY });
    assert_eq!(vectors.len(), 1, "a refused append stores nothing");
    assert_eq!(top_k(&vectors, &[1.0], 1, None).unwrap_err(), Error::Dimension { got: 1, expected: 2 });
    assert!(matches!(
        top_k(&vectors, &[1.0, f32::NAN], 1, None).unwrap_err(),
        Error::NonFiniteQuery { column: 1, value } if value.is_nan()
    ));
    assert_eq!(top_k(&vectors, &[1.0, 0.0], 1, Some(&[0, 1])).unwrap_err(), Error::RowOutOfRange { row: 1, len: 1 });
}
