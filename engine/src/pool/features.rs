//! Pool features: which are enabled and active, and which this version cannot read.
