//! For tests only: golden pools, manifests, oracles.
