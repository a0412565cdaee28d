//! Properties of datasets: the table of all native ones, their values and where each value comes from.
