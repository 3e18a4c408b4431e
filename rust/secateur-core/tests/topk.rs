//! The search against brute force, with every pass and every instruction set.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A panic is how a test fails.

mod common;

use common::numbers;
use proptest::prelude::*;
use secateur_core::simd::{self, InstructionSet};
use secateur_core::{Error, HalfLife, Match, OfRows, Pass, Search, Vectors, Weights, Within, search, search_matrix};

const PASSES: [Option<Pass>; 5] =
    [None, Some(Pass::Exact), Some(Pass::Bytes), Some(Pass::Nibbles), Some(Pass::Rotated)];

fn cosine(query: &[f32], row: &[f32]) -> f64 {
    let norm = |vector: &[f32]| simd::dot_portable(vector, vector).sqrt();
    let norms = norm(query) * norm(row);
    if norms == 0.0 { 0.0 } else { simd::dot_portable(query, row) / norms }
}

/// Scores every row on its own, then sorts everything.
fn brute_force(rows: &[Vec<f32>], query: &[f32], k: usize) -> Vec<Match> {
    best(rows.iter().map(|row| cosine(query, row) as f32).enumerate(), k)
}

fn best(scores: impl Iterator<Item = (usize, f32)>, k: usize) -> Vec<Match> {
    let mut matches: Vec<Match> =
        scores.map(|(position, score)| Match { position, score: if score == 0.0 { 0.0 } else { score } }).collect();
    matches.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap().then(a.position.cmp(&b.position)));
    matches.truncate(k);
    matches
}

fn store(rows: &[Vec<f32>], dimension: usize) -> Vectors {
    let mut vectors = Vectors::new(dimension).unwrap();
    vectors.append(&rows.concat()).unwrap();
    vectors
}

fn found(vectors: &Vectors, query: &[f32], asked: &Search<'_>) -> Vec<Match> {
    search(vectors, &[query], asked).unwrap().remove(0)
}

/// The bits decide: equal floats may differ in sign.
fn same(a: &[Match], b: &[Match]) -> bool {
    let bits =
        |matches: &[Match]| matches.iter().map(|found| (found.position, found.score.to_bits())).collect::<Vec<_>>();
    bits(a) == bits(b)
}

/// Asks in every way that this machine knows; the answers must be one.
fn assert_found(vectors: &Vectors, query: &[f32], asked: Search<'_>, expected: &[Match]) {
    for pass in PASSES {
        for instruction_set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            for (threads, rows_per_thread) in [(1, 1), (3, 5)] {
                let asked = Search { pass, instruction_set, threads, rows_per_thread, ..asked };
                let answer = found(vectors, query, &asked);
                assert!(
                    same(&answer, expected),
                    "{pass:?}, {instruction_set:?}, {threads} threads: {answer:?} in place of {expected:?}"
                );
            }
        }
    }
}

fn random_rows(count: usize, dimension: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut numbers = numbers(seed);
    (0..count).map(|_| numbers.by_ref().take(dimension).collect()).collect()
}

type Allowed<'a> = &'a dyn Fn(usize) -> bool;

/// Rows of one dimension, with the shapes that break searches: duplicates, scaled copies, zeros, one-hot, extremes.
fn case() -> impl Strategy<Value = (Vec<Vec<f32>>, Vec<f32>)> {
    let dimension = prop_oneof![1_usize..80, 64_usize..140, Just(384), Just(1_000), Just(1_536)];
    dimension.prop_flat_map(|dimension| {
        let row = (0_u64..40, 0_u8..12, -40_i32..38).prop_map(move |(seed, kind, exponent)| {
            let plain = || numbers(seed).take(dimension);
            let power = 10_f64.powi(exponent);
            match kind {
                0 => vec![0.0; dimension],
                1 => vec![0.125; dimension],
                2 => (0..dimension).map(|at| if at == seed as usize % dimension { -3.0 } else { 0.0 }).collect(),
                3 | 4 => plain().map(|value| (f64::from(value) * power) as f32).collect(),
                5 => plain().map(f32::signum).collect(),
                6 => plain().zip((0..30).cycle()).map(|(value, power)| value * 10_f32.powi(-power)).collect(),
                7 => plain().map(|value| if value < 0.9 { -0.0 } else { value }).collect(),
                _ => plain().collect(),
            }
        });
        (prop::collection::vec(row.clone(), 0..70), row)
    })
}

proptest! {
    #[test]
    fn equals_brute_force((rows, query) in case(), k in 0_usize..80) {
        let vectors = store(&rows, query.len());
        assert_found(&vectors, &query, Search::new(k), &brute_force(&rows, &query, k));
    }

    #[test]
    fn candidates_are_searched_as_if_they_were_all(
        (rows, query) in case(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..90),
        k in 0_usize..70,
    ) {
        prop_assume!(!rows.is_empty());
        let half_life = HalfLife::new(7.0, 1.5).unwrap();
        let candidates: Vec<usize> = picks.iter().map(|pick| pick.index(rows.len())).collect();
        let chosen: Vec<Vec<f32>> = candidates.iter().map(|&row| rows[row].clone()).collect();
        let vectors = store(&rows, query.len());
        let asked = Search { within: Within::Rows(&candidates), ..Search::new(k) };
        assert_found(&vectors, &query, asked, &brute_force(&chosen, &query, k));
        // Weighted by the row, wherever it stands among the candidates.
        let run = rows.len() / 3..rows.len();
        let consecutive: Vec<usize> = run.collect();
        for candidates in [&candidates, &consecutive] {
            let weighted = |&row: &usize| (cosine(&query, &rows[row]) * half_life.at(rows.len() - 1 - row)) as f32;
            let expected = best(candidates.iter().map(weighted).enumerate(), k);
            let weights = Some(Weights { of_rows: OfRows::HalfLife(&half_life), additive: false });
            assert_found(&vectors, &query, Search { within: Within::Rows(candidates), weights, ..Search::new(k) }, &expected);
        }
    }

    #[test]
    fn a_bare_matrix_is_searched_as_an_index_is((rows, query) in case(), k in 0_usize..80) {
        let answer = search_matrix(&rows.concat(), query.len(), &query, k).unwrap();
        prop_assert!(same(&answer, &brute_force(&rows, &query, k)));
    }

    #[test]
    fn masks_ranges_weights_and_deleted_rows(
        (rows, query) in case(),
        words in prop::collection::vec(any::<u64>(), 2),
        deleted in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ranges in prop::collection::vec((0_usize..70, 0_usize..70), 0..4),
        weights in prop::collection::vec(prop_oneof![0.0_f64..2.0, Just(0.0), Just(1e-300)], 70),
        half_life in 0.01_f64..300.0,
        k in 0_usize..80,
    ) {
        prop_assume!(!rows.is_empty());
        let mut vectors = store(&rows, query.len());
        let deleted: Vec<usize> = deleted.iter().map(|index| index.index(rows.len())).collect();
        vectors.delete(&deleted).unwrap();
        let weights = &weights[..rows.len()];
        let half_life = HalfLife::new(half_life, 0.7).unwrap();
        let words = &words[..rows.len().div_ceil(64)];
        let bit = |row: usize| words[row / 64] >> (row % 64) & 1 == 1;
        let ranges: Vec<std::ops::Range<usize>> = ranges
            .into_iter()
            .map(|(start, length)| start.min(rows.len())..(start.min(rows.len()) + length).min(rows.len()))
            .collect();
        let in_range = |row: usize| ranges.iter().any(|range| range.contains(&row));
        let withins: [(Within<'_>, Allowed<'_>); 3] =
            [(Within::All, &|_| true), (Within::Mask(words), &bit), (Within::Ranges(&ranges), &in_range)];
        for (within, allowed) in withins {
            let allowed = |row: &usize| allowed(*row) && !deleted.contains(row);
            let live = || (0..rows.len()).filter(allowed);
            let plain = best(live().map(|row| (row, cosine(&query, &rows[row]) as f32)), k);
            assert_found(&vectors, &query, Search { within, ..Search::new(k) }, &plain);
            for additive in [false, true] {
                let weighted = |row: usize, weight: f64| {
                    let cosine = cosine(&query, &rows[row]);
                    (row, if additive { cosine + weight } else { cosine * weight } as f32)
                };
                let of_rows = OfRows::Values(weights);
                let expected = best(live().map(|row| weighted(row, weights[row])), k);
                let asked = Search { within, weights: Some(Weights { of_rows, additive }), ..Search::new(k) };
                assert_found(&vectors, &query, asked, &expected);
                let of_rows = OfRows::HalfLife(&half_life);
                let expected = best(live().map(|row| weighted(row, half_life.at(rows.len() - 1 - row))), k);
                let asked = Search { within, weights: Some(Weights { of_rows, additive }), ..Search::new(k) };
                assert_found(&vectors, &query, asked, &expected);
            }
        }
    }

    #[test]
    fn every_kernel_gives_the_same_bits((rows, query) in case()) {
        let wide: Vec<f64> = query.iter().map(|&value| value.into()).collect();
        for row in &rows {
            let expected = simd::dot_portable(&query, row);
            prop_assert_eq!(simd::dot(&query, row).to_bits(), expected.to_bits());
            for set in InstructionSet::ALL {
                let four = simd::dot_of_four(set, &wide, [row, row, &query, row]);
                prop_assert_eq!(four[3].to_bits(), expected.to_bits());
                prop_assert_eq!(four[2].to_bits(), simd::dot_portable(&query, &query).to_bits());
            }
            // 1e-12 of the sum of magnitudes: far above float64 rounding, far below any wrong lane.
            let terms = || query.iter().zip(row).map(|(&x, &y)| f64::from(x) * f64::from(y));
            let magnitude: f64 = terms().map(f64::abs).sum();
            prop_assert!((expected - terms().sum::<f64>()).abs() <= 1e-12 * magnitude);
        }
    }

    #[test]
    fn a_half_life_is_a_half_life(rows in 0.01_f64..1e6, scale in 0.0_f64..10.0, age in 0_usize..100_000) {
        let expected = scale * (-(age as f64) / rows).exp2();
        let weight = HalfLife::new(rows, scale).unwrap().at(age);
        prop_assert!((weight - expected).abs() <= 1e-9 * expected + f64::MIN_POSITIVE, "{weight} {expected}");
    }
}

#[test]
fn several_segments_and_batches_equal_brute_force() {
    // Odd numbers of rows over the edge of segments; duplicates far apart; clusters, whose bounds crowd.
    for (count, dimension) in [(4_097, 65), (9_001, 384), (12_345, 130), (5_000, 7)] {
        let mut rows = random_rows(count, dimension, count as u64);
        let centre = rows[0].clone();
        for (row, seed) in rows.iter_mut().skip(1).step_by(3).zip(1..) {
            let near: Vec<f32> = centre.iter().zip(numbers(seed)).map(|(c, n)| c + n * 0.3).collect();
            *row = near;
        }
        for twin in [4_000, 4_095, count - 1] {
            rows[twin] = rows[10].iter().map(|value| value * 4.0).collect();
        }
        let vectors = store(&rows, dimension);
        let queries: Vec<Vec<f32>> =
            (0..18).map(|at| rows[at * 37 + 10].clone()).chain(random_rows(3, dimension, 5)).collect();
        let expected: Vec<Vec<Match>> = queries.iter().map(|query| brute_force(&rows, query, 150)).collect();
        for (query, expected) in queries.iter().zip(&expected).take(3) {
            for k in [1, 10, 150] {
                assert_found(&vectors, query, Search::new(k), &expected[..k]);
            }
        }
        let queries: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
        for instruction_set in InstructionSet::ALL {
            for (some, expected) in [(&queries[..], &expected[..]), (&queries[..5], &expected[..5])] {
                let answers = search(&vectors, some, &Search { instruction_set, ..Search::new(150) }).unwrap();
                assert!(answers.iter().zip(expected).all(|(answer, expected)| same(answer, expected)));
            }
        }
    }
}

/// Rows that crowd in few directions, as embeddings do, with some that do not.
fn crowded_rows(count: usize, dimension: usize) -> Vec<Vec<f32>> {
    let directions = random_rows(40, dimension, 99);
    let mut numbers = numbers(7);
    let mut rows: Vec<Vec<f32>> = (0..count)
        .map(|_| {
            let mut row: Vec<f32> = numbers.by_ref().take(dimension).map(|noise| noise * 0.3).collect();
            for (at, direction) in directions.iter().enumerate() {
                let factor = numbers.next().unwrap() / (1 + at) as f32;
                row.iter_mut().zip(direction).for_each(|(value, part)| *value += factor * part);
            }
            row
        })
        .collect();
    for (at, row) in rows.iter_mut().enumerate().skip(5).step_by(997) {
        *row = match at % 5 {
            0 => vec![0.0; dimension],
            1 => (0..dimension).map(|place| if place == at % dimension { -2.0 } else { 0.0 }).collect(),
            2 => row.iter().map(|value| value * 1e-30).collect(),
            3 => row.iter().map(|value| value * 1e30).collect(),
            _ => numbers.by_ref().take(dimension).collect(),
        };
    }
    rows
}

#[test]
fn rotated_rows_equal_brute_force() {
    for (count, dimension) in [(17_500, 384), (16_384, 300)] {
        let mut rows = crowded_rows(count, dimension);
        for twin in [4_000, 12_345, count - 1] {
            rows[twin] = rows[10].iter().map(|value| value * 4.0).collect();
        }
        let mut vectors = store(&rows, dimension);
        assert!(vectors.is_rotated());
        // Rows that change after the rotation has been learnt.
        for changed in [77, 9_000, 16_383] {
            rows[changed] = random_rows(1, dimension, changed as u64).remove(0);
            vectors.update(&[changed], &rows[changed]).unwrap();
        }
        vectors.delete(&[4_000]).unwrap();
        let near = |at: usize| rows[at].iter().zip(numbers(3)).map(|(value, noise)| value + noise * 0.1).collect();
        let queries = [rows[10].clone(), near(77), near(8_000), random_rows(1, dimension, 1).remove(0)];
        for query in &queries {
            let scores = rows.iter().map(|row| cosine(query, row) as f32).enumerate();
            let expected = best(scores.filter(|&(row, _)| row != 4_000), 120);
            for k in [1, 10, 120] {
                assert_found(&vectors, query, Search::new(k), &expected[..k]);
            }
        }
    }
}

#[test]
fn rows_without_any_preference_are_not_rotated() {
    assert!(!store(&random_rows(16_384, 256, 1), 256).is_rotated());
}

/// From so many rows on a search turns to rotated rows by itself, and back where they leave over too many.
#[test]
fn passes_that_are_chosen_equal_brute_force() {
    let rows = crowded_rows(52_000, 256);
    let vectors = store(&rows, 256);
    assert!(vectors.is_rotated());
    let near = rows[40_000].iter().zip(numbers(3)).map(|(value, noise)| value + noise * 0.1).collect();
    let queries = [near, random_rows(1, 256, 1).remove(0), rows[51_999].clone()];
    for query in &queries {
        let expected = brute_force(&rows, query, 30);
        for (k, threads) in [(1, 1), (30, 1), (30, 2)] {
            let asked = Search { threads, ..Search::new(k) };
            assert!(same(&found(&vectors, query, &asked), &expected[..k]));
        }
    }
    let queries: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
    let answers = search(&vectors, &queries, &Search::new(30)).unwrap();
    assert!(answers.iter().zip(&queries).all(|(answer, query)| same(answer, &brute_force(&rows, query, 30))));
}

#[test]
fn updated_deleted_and_compacted_rows() {
    let rows = random_rows(5_000, 70, 11);
    let mut vectors = store(&rows, 70);
    vectors.update(&[3, 4_500], &[rows[8].clone(), rows[9].clone()].concat()).unwrap();
    assert_eq!(vectors.row(4_500).unwrap(), rows[9]);
    let of = |vectors: &Vectors, k| {
        found(vectors, &rows[9], &Search::new(k)).iter().map(|found| found.position).collect::<Vec<_>>()
    };
    assert_eq!(of(&vectors, 2), [9, 4_500]);
    vectors.delete(&[9, 9]).unwrap();
    assert_eq!((vectors.len(), vectors.rows()), (4_999, 5_000));
    assert_eq!(of(&vectors, 1), [4_500]);
    assert_eq!(vectors.delete(&[1, 9]).unwrap_err(), Error::DeletedRow { row: 9 });
    assert_eq!(vectors.update(&[9], &rows[9]).unwrap_err(), Error::DeletedRow { row: 9 });
    assert_eq!(vectors.len(), 4_999, "a refused deletion deletes nothing");
    let numbers = vectors.compact();
    assert_eq!((numbers.len(), numbers[8], numbers[9]), (4_999, 8, 10));
    assert_eq!((vectors.len(), vectors.rows()), (4_999, 4_999));
    assert_eq!(of(&vectors, 1), [4_499]);
    assert_eq!(of(&vectors, 6_000).len(), 4_999);
}

#[test]
fn the_newest_of_equals_are_found_under_decay() {
    let rows = vec![vec![1.0; 64]; 50_000];
    let vectors = store(&rows, 64);
    let half_life = HalfLife::new(50.0, 1.0).unwrap();
    let weights = Some(Weights { of_rows: OfRows::HalfLife(&half_life), additive: false });
    let answer = found(&vectors, &rows[0], &Search { weights, ..Search::new(3) });
    assert_eq!(answer.iter().map(|found| found.position).collect::<Vec<_>>(), [49_999, 49_998, 49_997]);
}

#[test]
fn a_refused_append_teaches_nothing() {
    let rows = crowded_rows(16_384, 256).concat();
    let mut vectors = Vectors::new(256).unwrap();
    let refused = vectors.append(&[&rows[..], &[f32::NAN; 256]].concat()).unwrap_err();
    assert!(matches!(refused, Error::NonFiniteRow { row: 16_384, column: 0, .. }));
    assert_eq!((vectors.rows(), vectors.is_rotated()), (0, false));
}

#[test]
fn memory_stays_within_its_share() {
    let mut vectors = Vectors::new(384).unwrap();
    let rows: Vec<f32> = random_rows(2_000, 384, 1).concat();
    for _ in 0..5 {
        vectors.append(&rows).unwrap();
    }
    let memory = vectors.memory();
    // The last segment has room for rows to come.
    assert!(memory.owned <= 12_288 * 384 * 4 * 145 / 100, "{memory:?}");
    assert_eq!(memory.mapped, 0);
}

#[test]
fn a_weight_that_takes_the_cosine_away_hides_no_row() {
    // The cosine is a little above one before it is rounded, and all that is left of the score.
    let parallel = [0.9, 0.3, 0.4];
    let mut rows = vec![vec![0.0; 3]; 2_048];
    rows[5] = parallel.map(|value| value * 3.0).to_vec();
    let mut weights = vec![-2.0; 2_048];
    weights[5] = -1.0;
    weights[1_500] = -1.0 + 1e-20;
    weights[1_501] = 1e-20;
    let vectors = store(&rows, 3);
    let scores = rows.iter().zip(&weights).map(|(row, weight)| (cosine(&parallel, row) + weight) as f32);
    let expected = best(scores.enumerate(), 3);
    let asked = Weights { of_rows: OfRows::Values(&weights), additive: true };
    assert_found(&vectors, &parallel, Search { weights: Some(asked), ..Search::new(3) }, &expected);
}

#[test]
fn ties_go_to_the_earlier_row() {
    let vectors = store(&[vec![1.0, 0.0], vec![0.0, 1.0], vec![2.0, 0.0], vec![1.0, 0.0]], 2);
    let positions: Vec<usize> =
        found(&vectors, &[3.0, 0.0], &Search::new(2)).iter().map(|found| found.position).collect();
    assert_eq!(positions, [0, 2]);
}

#[test]
fn refuses_what_it_cannot_search() {
    assert_eq!(Vectors::new(0).unwrap_err(), Error::ZeroDimension);
    assert_eq!(Vectors::new(1 << 60).unwrap_err(), Error::LongRows { dimension: 1 << 60, most: 1 << 20 });
    let mut vectors = Vectors::new(2).unwrap();
    vectors.append(&[1.0, 2.0]).unwrap();
    assert_eq!(vectors.append(&[1.0, 2.0, 3.0]).unwrap_err(), Error::NoWholeRows { values: 3, dimension: 2 });
    assert_eq!(vectors.update(&[0], &[1.0; 3]).unwrap_err(), Error::Values { got: 3, rows: 1, dimension: 2 });
    assert_eq!(search_matrix(&[1.0; 3], 2, &[1.0; 2], 1).unwrap_err(), Error::NoWholeRows { values: 3, dimension: 2 });
    assert!(matches!(
        search_matrix(&[0.0, 1.0, f32::NAN, 0.0], 2, &[1.0; 2], 1).unwrap_err(),
        Error::NonFiniteRow { row: 1, column: 0, .. }
    ));
    let refused = vectors.append(&[[1.0; 40].as_slice(), &[3.0, f32::INFINITY]].concat()).unwrap_err();
    assert_eq!(refused, Error::NonFiniteRow { row: 20, column: 1, value: f32::INFINITY });
    assert_eq!(vectors.len(), 1, "a refused append stores nothing");
    let refused = |query: &[f32], asked: Search<'_>| search(&vectors, &[query], &asked).unwrap_err();
    let all = Search::new(1);
    assert_eq!(refused(&[1.0], all), Error::Dimension { got: 1, expected: 2 });
    assert!(matches!(
        refused(&[1.0, f32::NAN], all),
        Error::NonFiniteQuery { column: 1, value } if value.is_nan()
    ));
    let query = [1.0, 0.0];
    assert_eq!(
        refused(&query, Search { within: Within::Rows(&[0, 1]), ..all }),
        Error::RowOutOfRange { row: 1, len: 1 }
    );
    assert_eq!(
        refused(&query, Search { within: Within::Ranges(&[0..1, 1..2]), ..all }),
        Error::RowOutOfRange { row: 2, len: 1 }
    );
    assert_eq!(
        refused(&query, Search { within: Within::Mask(&[1, 2]), ..all }),
        Error::RowCount { what: "mask", got: 128, expected: 1 }
    );
    let beyond = [usize::MAX];
    assert_eq!(
        refused(&query, Search { within: Within::Rows(&beyond), ..all }),
        Error::RowOutOfRange { row: usize::MAX, len: 1 }
    );
    let weights = |of_rows| Search { weights: Some(Weights { of_rows, additive: false }), ..all };
    assert_eq!(
        refused(&query, weights(OfRows::Values(&[1.0, 2.0]))),
        Error::RowCount { what: "weights", got: 2, expected: 1 }
    );
    assert_eq!(
        refused(&query, weights(OfRows::Values(&[-1.0]))),
        Error::Weight { row: 0, value: -1.0, expected: "a number from 0 to 1e30" }
    );
    assert!(matches!(HalfLife::new(0.0, 1.0).unwrap_err(), Error::HalfLife { what: "the half-life", .. }));
    assert!(matches!(HalfLife::new(1.0, f64::NAN).unwrap_err(), Error::HalfLife { what: "scale", .. }));
}
