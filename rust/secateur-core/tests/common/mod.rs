//! What several tests share.

/// Numbers from -1 to 1 that look random and are the same in every run.
pub(crate) fn numbers(seed: u64) -> impl Iterator<Item = f32> {
    let mut state = seed * 2 + 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    })
}
