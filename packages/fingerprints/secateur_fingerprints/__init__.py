"""Files of fingerprints, which `secateur.TokenEstimator(profile, fingerprints=True)` finds here by their names."""
