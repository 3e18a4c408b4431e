//! Nothing: the package holds benchmarks only (`cargo bench -p secateur-benches`).
