//! Finding pools: scan paths for labels, group them by pool and device, judge what could be imported.
